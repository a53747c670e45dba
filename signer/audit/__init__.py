"""The audit log: what each decision rested upon, written so that it can be judged again later.

account        what one decision looked at, as it went along
decision_line  one line: request, account and result, without bearer credentials
log            appends lines to a file, chained by their digests
chain          reads files again, and finds what is missing or was changed
rejudging      judges a line again, by the rules of :mod:`signer.rules` and the attestor's own code
verification   all of it, over files
"""
