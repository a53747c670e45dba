"""The audit log: the inputs and the result of each decision, so that the decision can be replayed later.

decision_inputs  the inputs of one decision, recorded while it is made
decision_line    one line: request, decision inputs and result, without bearer credentials
log              appends lines to a file, chained by their digests
chain            reads files, and finds missing and changed lines
replay           replays a line with the rules of :mod:`signer.rules` and the attestor's own code
verification     verifies files: chain, lines and decisions
"""
