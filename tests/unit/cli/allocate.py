"""Allocate device memory on command, through libcuda.so.1 as the loader finds it.

Commands, one a line: "alloc MIB", "free", "info", "context". Answers are numbers: the CUDA error
and, for info, free and total bytes.
"""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
pointers: list[ctypes.c_uint64] = []


def main() -> None:
    """Serve commands until the input ends."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    code = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
    code = code or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    code = code or cuda.cuCtxSetCurrent(context)
    for line in sys.stdin:
        words = line.split()
        answer = [code]
        if words[0] == "alloc":
            pointer = ctypes.c_uint64()
            answer = [cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(words[1]) << 20))]
            if answer == [0]:
                pointers.append(pointer)
        elif words[0] == "free":
            answer = [cuda.cuMemFree_v2(pointers.pop())]
        elif words[0] == "info":
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            answer = [cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), free.value, total.value]
        print(*answer, flush=True)


main()
