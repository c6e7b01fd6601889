"""The picture of a GPU's threads and memory in docs/path, as SVG text: boxes with their sizes, arrows with bandwidths.

Figures are those of an H200 SXM: NVIDIA's data sheet (memory; PCIe, half of its 128 GB/s, which are both ways), its
Hopper tuning guide (registers, shared memory), the device itself (multiprocessors, L2: docs/notes/speed-of-light.md),
and 32 banks of 4 bytes a clock (CUDA C++ programming guide) at 1.98 GHz for shared memory.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 840, 372
MULTIPROCESSORS, BANKS, BANK_BYTES, CLOCK_GHZ = 132, 32, 4, 1.98
MEMORY_TB_S = 4.8
LANE, WARP_LANES = 7, 32


def shared_tb_s() -> float:
    """Of all multiprocessors together, in TB/s."""
    return MULTIPROCESSORS * BANKS * BANK_BYTES * CLOCK_GHZ / 1000


def svg() -> str:
    """The picture."""
    parts = [
        _box(8, 8, 366, 356, "#dce9f7", "one of 132 multiprocessors"),
        _box(20, 40, 342, 138, "#ffffff", "a block: up to 1,024 threads"),
        *(_warp(34, 70 + 24 * row) for row in range(3)),
        _text(34, 156, "a row of dots is a warp: 32 threads in step"),
        _box(20, 190, 342, 70, "#f4f1e6", "registers: 256 KB"),
        _text(34, 236, "each thread's own, at most 255 of 4 bytes"),
        _box(20, 284, 342, 70, "#f4f1e6", "shared memory: up to 227 KB for a block"),
        _text(34, 330, "all threads of the block read and write it"),
        _arrow(48, 262, 48, 282, ""),
        _text(66, 277, f"{BANKS * BANK_BYTES} bytes a clock: {shared_tb_s():.0f} TB/s for all 132"),
        _box(444, 100, 130, 180, "#f4f1e6", "L2: 60 MB"),
        *_lines(456, 146, ["of the whole GPU;", "what was read or", "written last", "may still be here"]),
        _box(664, 100, 168, 100, "#f4f1e6", "memory: 141 GB"),
        *_lines(676, 146, ["where tensors are", "(global memory)"]),
        _box(664, 280, 168, 76, "#eeeeee", "the host's memory"),
        _text(676, 326, "CPU"),
        _arrow(376, 190, 442, 190, ""),
        _arrow(576, 150, 662, 150, f"{MEMORY_TB_S} TB/s"),
        _arrow(748, 202, 748, 278, ""),
        _text(580, 246, "PCIe: 0.064 TB/s each way"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">\n<title>Threads, memory and bandwidths of an H200</title>\n'
        '<defs><marker id="head" markerWidth="4" markerHeight="4" refX="4" refY="2" orient="auto-start-reverse">'
        '<path d="M0,0 L4,2 L0,4 z" fill="#555555"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def is_drawn(path: Path) -> bool:
    """Whether the file shows it."""
    return path.exists() and path.read_text() == svg()


def draw(path: Path) -> None:
    """Write it."""
    path.write_text(svg())


def _box(x: int, y: int, width: int, height: int, color: str, title: str) -> str:
    box = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{color}" stroke="#555555"/>'
    return f'{box}<text x="{x + 12}" y="{y + 20}" font-weight="bold">{escape(title)}</text>'


def _warp(x: int, y: int) -> str:
    lanes = (f'<circle cx="{x + 10 * lane + 4}" cy="{y + 6}" r="{LANE / 2}"/>' for lane in range(WARP_LANES))
    return f'<g fill="#4a7ebb">{"".join(lanes)}</g>'


def _text(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}">{escape(text)}</text>'


def _lines(x: int, y: int, lines: list[str]) -> list[str]:
    return [_text(x, y + 18 * number, line) for number, line in enumerate(lines)]


def _arrow(x: int, y: int, to_x: int, to_y: int, label: str) -> str:
    line = (
        f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="#555555" stroke-width="2" '
        'marker-start="url(#head)" marker-end="url(#head)"/>'
    )
    return f'{line}<text x="{(x + to_x) // 2}" y="{y - 8}" text-anchor="middle">{escape(label)}</text>'
