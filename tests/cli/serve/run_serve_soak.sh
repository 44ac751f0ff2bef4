#!/usr/bin/env bash
# ctest: ranks=2 timeout=1800 labels=web soak
# The clients of run_serve.sh with 10 000 requests, 64 at once: the memory of `bitrain serve` does not grow.
REQUESTS=10000 SLOW=1500 exec bash "$(dirname "$0")/run_serve.sh"
