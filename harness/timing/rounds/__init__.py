"""Rounds of contenders: how one is played and judged, and how many there are."""
