"""Evaluations that are kept, in an SQLite database, and how they are ranked."""

from harness.store.board import Board, Entry, Standing, boards, history
from harness.store.database import Store, open_store
from harness.store.keeping import Keeper, texts_of
from harness.store.rows import Stored

__all__ = ["Board", "Entry", "Keeper", "Standing", "Store", "Stored", "boards", "history", "open_store", "texts_of"]
