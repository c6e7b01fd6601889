"""Ends the process while it is loaded, with the exit code of success.

surface: exit codes
expect: rejected exited
"""

import os

os._exit(0)
