"""Keep a simulated card at work on command, through libcuda.so.1 as the loader finds it.

Commands, one a line: "work NS DEPTH [NS]" launches kernels of so many nanoseconds, DEPTH at a time, until the
next command, and after each of them one of the last number by the driver itself, past whatever stands before
it; "rest" does nothing. Each command is answered with CUDA's error. The next kernels are queued
before the last ones are done, so that the card has work while this process waits for the processor.
"""

import ctypes
import select
import sys

cuda = ctypes.CDLL("libcuda.so.1")
driver = ctypes.CDLL(sys.argv[1]) if sys.argv[1:] else cuda
commands = sys.stdin.fileno()


def main() -> None:
    """Serve commands until the input ends."""
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    code = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
    code = code or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    code = code or cuda.cuCtxSetCurrent(context) or cuda.cuModuleLoadData(ctypes.byref(module), b"image")
    kernel, past, depth, beside = ctypes.c_void_p(), ctypes.c_void_p(), 0, False
    before, after = ctypes.c_void_p(), ctypes.c_void_p()
    code = code or cuda.cuEventCreate(ctypes.byref(before), 0) or cuda.cuEventCreate(ctypes.byref(after), 0)
    while True:
        if depth == 0 or select.select([commands], [], [], 0)[0]:
            words = sys.stdin.readline().split()
            if not words:
                return
            code = code or cuda.cuCtxSynchronize()
            depth = int(words[2]) if words[0] == "work" else 0
            beside = len(words) > 3
            for function, ns in zip((kernel, past), words[1:2] + words[3:], strict=False):
                name = f"gaia_spin_{ns}".encode()
                code = code or cuda.cuModuleGetFunction(ctypes.byref(function), module, name)
            print(code, flush=True)
        for _ in range(depth):
            code = code or cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
            if beside:
                code = code or driver.cuLaunchKernel(past, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        code = code or cuda.cuEventRecord(after, None) or cuda.cuEventSynchronize(before)
        before, after = after, before


main()
