"""Calls sys.exit(0) while it is loaded.

surface: exit codes
expect: rejected load_failed
"""

import sys

print("ACCEPTED")
sys.exit(0)
