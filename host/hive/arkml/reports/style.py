"""The style sheet of a report, for light and dark screens, wide and narrow ones."""

STYLE = """
:root { --page: #fff; --text: #1d2330; --soft: #626b7a; --grid: #dfe3ea; --mark: #fff3c4;
  --c0: #1f6fc4; --c1: #c4511f; --c2: #23855a; --c3: #9342b8; --c4: #a67c00; --c5: #00808f;
  --c6: #c02f67; --c7: #5b6472; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171d; --text: #e4e8ef; --soft: #98a2b3; --grid: #303743; --mark: #4a3d10;
    --c0: #6cb2f7; --c1: #f79a6c; --c2: #5fcf9c; --c3: #cf92ef; --c4: #e3bd4e; --c5: #4fc9d8;
    --c6: #f585b1; --c7: #a9b3c2; }
}
body { margin: 0 auto; padding: 1rem; max-width: 90rem; background: var(--page);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1rem 0 .3rem; } small, footer, .empty { color: var(--soft); }
footer { margin-top: 2rem; }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.5rem; }
.legend button { font: inherit; color: inherit; background: none; border: 1px solid var(--grid);
  border-radius: .4rem; padding: .1rem .5rem; cursor: pointer; text-align: left; }
.legend [aria-pressed="false"] { opacity: .6; text-decoration: line-through; }
.swatch { display: inline-block; width: 1.5rem; height: .4rem; margin-right: .5rem;
  vertical-align: middle; }
.off { display: none; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(21rem, 100%), 1fr));
  gap: 1rem; }
.chart { margin: 0; min-width: 0; } .chart svg { display: block; width: 100%; height: auto; }
.chart figcaption, .same { color: var(--soft); font-size: .85rem; }
.area { position: relative; } :focus-visible { outline: 2px solid var(--c0); }
.reading { position: absolute; top: .4rem; z-index: 1; max-width: 75%; padding: .2rem .5rem;
  background: var(--page); border: 1px solid var(--grid); border-radius: .3rem;
  font-size: .8rem; pointer-events: none; }
.reading[hidden] { display: none; } .reading .swatch { width: .6rem; }
.reading .where { color: var(--soft); }
.reading .of { display: inline-block; max-width: 11rem; overflow: hidden; white-space: nowrap;
  text-overflow: ellipsis; vertical-align: bottom; }
.chart text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.chart .name { font-weight: 600; fill: var(--text); }
.chart .y { text-anchor: end; } .chart .x { text-anchor: middle; }
.grid { fill: none; stroke: var(--grid); }
.line { fill: none; stroke: var(--color); stroke-width: 1.6; stroke-linejoin: round; }
.band { fill: var(--color); fill-opacity: .2; stroke: none; } .dot { fill: var(--color); }
.c0 { --color: var(--c0); } .c1 { --color: var(--c1); } .c2 { --color: var(--c2); }
.c3 { --color: var(--c3); } .c4 { --color: var(--c4); } .c5 { --color: var(--c5); }
.c6 { --color: var(--c6); } .c7 { --color: var(--c7); }
.d1 { stroke-dasharray: 6 3; } .d2 { stroke-dasharray: 2 2; } .d3 { stroke-dasharray: 8 3 2 3; }
.scrolled { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .15rem .9rem .15rem 0;
  border-bottom: 1px solid var(--grid); min-width: 5rem; }
th { font-weight: 600; } tr th:first-child { color: var(--soft); font-weight: 400; }
.changed { background: var(--mark); }
summary { cursor: pointer; margin: .5rem 0; }
"""
