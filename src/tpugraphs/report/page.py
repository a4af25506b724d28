"""A self-contained page around a drawing: light and dark, mouse and keyboard, nothing fetched."""

from __future__ import annotations

from html import escape

STYLE = """
:root, svg { --ink: #1b1f24; --paper: #ffffff; --line: #7a8490; --plain: #eef1f4; --input: #ffffff;
  --move: #e3ecf7; --configurable: #ffd9a8; --found: #c2185b; }
@media (prefers-color-scheme: dark) { :root, svg { --ink: #e6e9ed; --paper: #14171b; --line: #8b95a1;
  --plain: #262c33; --input: #14171b; --move: #1f3147; --configurable: #7a4a12; --found: #ff7aa8; } }
svg { background: var(--paper); font: 11px ui-monospace, Menlo, Consolas, monospace; }
svg text { fill: var(--ink); text-anchor: middle; } svg .title { font-weight: 600; }
svg rect { stroke: var(--line); fill: var(--plain); } svg .input rect { fill: var(--input); stroke-dasharray: 3 2; }
svg .move rect { fill: var(--move); } svg .configurable rect { fill: var(--configurable); stroke-width: 1.6; }
svg path { fill: none; stroke: var(--line); } svg path.hidden { stroke-dasharray: 4 4; }
svg .edge { font-size: 9px; fill: var(--line); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
svg .found rect { stroke: var(--found); stroke-width: 3; }
"""

_FRAME = """
body { margin: 0; background: var(--paper); color: var(--ink); font: 14px system-ui, sans-serif; }
header { padding: 8px 14px; display: flex; gap: 14px; align-items: baseline; flex-wrap: wrap;
  border-bottom: 1px solid var(--line); }
h1 { font-size: 16px; margin: 0; } input { font: inherit; padding: 2px 6px; background: var(--paper);
  color: inherit; border: 1px solid var(--line); border-radius: 4px; }
main { position: fixed; inset: 48px 0 0 0; overflow: hidden; } main svg { width: 100%; height: 100%; cursor: grab; }
@media print { main { position: static; } header input { display: none; } }
"""

_SCRIPT = """
const [svg, find, told] = ['svg', 'input', 'output'].map(name => document.querySelector(name));
const whole = svg.viewBox.baseVal; let view = {x: whole.x, y: whole.y, w: whole.width, h: whole.height};
const show = () => svg.setAttribute('viewBox', `${view.x} ${view.y} ${view.w} ${view.h}`);
const zoom = (by, cx = 0.5, cy = 0.5) => { view.x += view.w * (1 - by) * cx; view.y += view.h * (1 - by) * cy;
  view.w *= by; view.h *= by; show(); };
const start = () => { const box = svg.getBoundingClientRect(), k = Math.max(1, whole.width / 2000);
  view = {w: box.width * k, h: box.height * k, x: (whole.width - box.width * k) / 2, y: 0}; show(); };
svg.addEventListener('wheel', e => { e.preventDefault(); const box = svg.getBoundingClientRect();
  zoom(e.deltaY > 0 ? 1.15 : 1 / 1.15, (e.clientX - box.x) / box.width, (e.clientY - box.y) / box.height); });
let held = null;
svg.addEventListener('pointerdown', e => { held = [e.clientX, e.clientY]; svg.setPointerCapture(e.pointerId); });
svg.addEventListener('pointerup', () => { held = null; });
svg.addEventListener('pointermove', e => { if (!held) return; const k = view.w / svg.getBoundingClientRect().width;
  view.x -= (e.clientX - held[0]) * k; view.y -= (e.clientY - held[1]) * k; held = [e.clientX, e.clientY]; show(); });
document.addEventListener('keydown', e => { if (e.target === find) return; const step = view.w / 10;
  const move = {ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step]}[e.key];
  if (move) { view.x += move[0]; view.y += move[1]; show(); e.preventDefault(); }
  if (e.key === '+') zoom(1 / 1.25); if (e.key === '-') zoom(1.25); if (e.key === '0') start();
  if (e.key === '/') { find.focus(); e.preventDefault(); } });
find.addEventListener('input', () => { const word = find.value.toLowerCase(); let count = 0, first = null;
  for (const node of svg.querySelectorAll('.node')) { const text = node.textContent.toLowerCase();
    const hit = word.length > 1 && text.includes(word); node.classList.toggle('found', hit);
    if (hit) { count += 1; first = first || node; } }
  told.textContent = word.length > 1 ? `${count} found` : '';
  if (first) { const box = first.getBBox(); view.x = box.x + box.width / 2 - view.w / 2;
    view.y = box.y + box.height / 2 - view.h / 2; show(); } });
start();
"""


def page(title: str, about: str, drawing: str, width: float, height: float) -> str:
    """The page; the drawing is the inside of an SVG of this size."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}{_FRAME}</style></head><body><header><h1>{escape(title)}</h1><span>{escape(about)}</span>"
        f'<label>find <input type="search" placeholder="opcode, name, shape"></label><output></output></header>'
        f'<main><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">{drawing}</svg></main><script>{_SCRIPT}</script></body></html>\n'
    )
