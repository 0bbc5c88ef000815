"""In: a plan, the devices' addresses and keys.
Out: the plan carried out by real machines that talk to their neighbours, with a journal of each.
May not know: contenders, results, views (``methods``, ``studies``, ``runs``, ``views``).
"""

import os
import sys

CIPHERS, ONLY_RSA = "GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES256-GCM-SHA384"

# gRPC for Python cannot be told to refuse TLS 1.2, and reads its environment when it is imported.
# With these ciphers for TLS 1.2 it cannot agree on it with a fleet's certificates, which are P-256
# (see `transport.channel`). Names are looked up as the system does, since its own resolver knows
# nothing of farm-07.local; what its core would print about strangers is said by name elsewhere.
if "grpc" not in sys.modules:
    os.environ[CIPHERS] = ONLY_RSA
    os.environ.setdefault("GRPC_DNS_RESOLVER", "native")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
