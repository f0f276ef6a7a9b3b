"""What INTERFACE and SPEC promise, asserted through public names, commands and HTTP alone.

Texts are asserted by code, pointer and the one word that matters: a better sentence changes no test.
"""
