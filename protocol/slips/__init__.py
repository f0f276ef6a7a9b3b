"""Texts that read as references and are none, and what was meant (SPEC R6.7, R12.6b).

`slip`          what is said of one text
`embedded`      references inside a longer text, and the text as a template
`naming`        which place a text names
`known_places`  which places there are for any reader
"""
