"""What holds for every test."""

from __future__ import annotations

import signal

# Started in the background, the tests inherit ignored signals and would hand them down to the commands they start,
# which then could not be interrupted.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)
