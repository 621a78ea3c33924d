"""A program that loads the simulated driver itself, past Gaia's library: `python rogue.py DRIVER`.

Each line that it reads is how many MiB it is to hold from then on; it answers with the driver's code.
"""

import ctypes
import sys


def main() -> None:
    cuda = ctypes.CDLL(sys.argv[1] + "/libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    card = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    code = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), card)
    code = code or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    code = code or cuda.cuCtxSetCurrent(context)
    print(code, flush=True)
    pointer = ctypes.c_uint64()
    for line in sys.stdin:
        if pointer.value:
            cuda.cuMemFree_v2(pointer)
            pointer = ctypes.c_uint64()
        size = int(line) << 20
        print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) if size else 0, flush=True)


main()
