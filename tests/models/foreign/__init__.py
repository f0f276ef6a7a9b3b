"""Model servers that others wrote, installed where they can be had: what we believe of the wire, held against them."""
