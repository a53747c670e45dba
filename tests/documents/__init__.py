"""The documents are checked like code: links, commands, examples, and the parts that are generated from the source.

``python -m tests.documents`` writes the generated parts again.
"""
