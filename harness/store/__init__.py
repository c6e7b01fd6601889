"""Evaluations that are kept, in an SQLite database, and how they are ranked."""

from harness.store.board import Board, Entry, Standing, boards, history
from harness.store.database import Store, open_store
from harness.store.glance import Glance, glances
from harness.store.keeping import Keeper, texts_of
from harness.store.pairs import Named, choose
from harness.store.rows import Stored, stored_of

__all__ = [
    "Board", "Entry", "Glance", "Keeper", "Named", "Standing", "Store", "Stored", "boards", "choose", "glances",
    "history", "open_store", "stored_of", "texts_of",
]  # fmt: skip
