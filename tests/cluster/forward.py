"""Reach a port inside a machine's network namespace from outside: connections to a local port go there."""

import asyncio
import contextlib
import ctypes
import os
import socket
import threading

_CLONE_NEWNET = 0x40000000


class Forward:
    """Listens on 127.0.0.1 and passes bytes to `address`, until `close`.

    A socket belongs to the network namespace of the thread that made it, so the listening one is made by
    the caller and the others by a thread that has moved into the machine's namespace. No interface of this
    machine is touched.
    """

    def __init__(self, pid: int, address: tuple[str, int]):
        self._address = address
        self._namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        self._listener = socket.create_server(("127.0.0.1", 0))
        # whoever is accepted inherits it; asyncio sets it only on sockets that name their protocol
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"forward-{self.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        os.close(self._namespace)

    def _run(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(self._namespace, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter the machine's network namespace")
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        serving: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._connection(reader, writer))
            serving.add(task)
            task.add_done_callback(serving.discard)

        server = await asyncio.start_server(connected, sock=self._listener)
        await self._stop.wait()
        server.close()
        for task in tuple(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            with contextlib.suppress(OSError):
                there, back = await asyncio.open_connection(*self._address)
                writers.append(back)
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            for each in writers:
                each.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(65536):
        target.write(chunk)
        await target.drain()
    target.write_eof()
