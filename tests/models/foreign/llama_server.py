"""llama.cpp's server for one model: python llama_server.py MODEL.gguf. Prints its address; ends when its input does."""

from __future__ import annotations

import sys

import xllamacpp

if __name__ == "__main__":
    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.n_ctx = 32_768
    parameters.n_parallel = 2
    parameters.cpuparams.n_threads = 1
    parameters.warmup = False
    parameters.port = 0
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()
