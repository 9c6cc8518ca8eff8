"""The style and the script of the HTML page: our own text, without any value from a record."""

from __future__ import annotations

__all__ = ["SCRIPT", "SERIES", "STYLE"]

# colours that stay apart for people who cannot tell red from green; a number stands beside each of them as well
SERIES = 8

STYLE = """
:root{color-scheme:light dark;
--paper:#ffffff;--card:#ffffff;--shade:#f5f6f8;--ink:#1a1d23;--soft:#59606d;--hair:#e1e4ea;--grid:#e9ebf0;
--link:#1f5fbf;--good:#14713d;--good-bg:#e3f4e9;--bad:#b3261e;--bad-bg:#fdeceb;--warn:#8a5300;--warn-bg:#fff3dc;
--flat:#4a5160;--flat-bg:#eceef2;
--c1:#2563b8;--c2:#d1660f;--c3:#0f8a6d;--c4:#b23a8c;--c5:#7a5bd0;--c6:#a17f00;--c7:#3d8fb5;--c8:#7d6a5a}
@media screen and (prefers-color-scheme:dark){:root{
--paper:#14161a;--card:#1b1e24;--shade:#22262d;--ink:#e8eaee;--soft:#a0a8b5;--hair:#30353e;--grid:#2a2f37;
--link:#84b4ff;--good:#7bd49b;--good-bg:#173424;--bad:#ff9d94;--bad-bg:#3d1d1b;--warn:#f0c069;--warn-bg:#3a2c12;
--flat:#b9c0cc;--flat-bg:#2a2f37;
--c1:#6ea8ff;--c2:#ff9d4d;--c3:#41c9a5;--c4:#ec85c8;--c5:#ad94ff;--c6:#dcbd45;--c7:#7cc8ec;--c8:#c0aa97}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Noto Sans","Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
main,header,footer,nav{max-width:1080px;margin:0 auto;padding:0 20px}
header{padding-top:36px}
h1{font-size:27px;line-height:1.2;letter-spacing:-.01em;margin:0 0 6px;overflow-wrap:anywhere}
h2{font-size:19px;margin:0 0 4px;letter-spacing:-.005em}
h3{font-size:15px;margin:0;overflow-wrap:anywhere}
p{margin:0 0 10px;max-width:76ch}
a{color:var(--link)}
.soft,.lead,figcaption,.small{color:var(--soft)}
.small{font-size:13px}
.lead{margin-bottom:14px}
nav{margin-top:14px}
nav ul{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;margin:0;padding:0;font-size:14px}
nav a{text-decoration:none}
section{margin-top:36px}
code,.id{font-family:ui-monospace,SFMono-Regular,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:12.5px;
overflow-wrap:anywhere}
pre{font-family:ui-monospace,SFMono-Regular,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:12px;line-height:1.45;
background:var(--shade);border-radius:6px;padding:10px 12px;margin:8px 0;overflow:auto;max-height:420px}
.card{background:var(--card);border:1px solid var(--hair);border-radius:8px;padding:14px 16px;margin:0 0 12px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(320px,100%),1fr));gap:12px}
.cards+p{margin-top:8px}
.cards .card{margin:0;min-width:0}
.compared{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:12px}
.compared .card{margin:0;min-width:0}
.verdict{display:flex;gap:10px 12px;align-items:baseline;flex-wrap:wrap}
.pill{display:inline-block;border-radius:999px;padding:1px 10px;font-size:13px;font-weight:600;white-space:nowrap}
.good{color:var(--good);background:var(--good-bg)}
.bad{color:var(--bad);background:var(--bad-bg)}
.warn{color:var(--warn);background:var(--warn-bg)}
.flat{color:var(--flat);background:var(--flat-bg)}
.headline{font-size:17px;font-weight:600;margin-bottom:12px}
.facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 14px;margin:8px 0 0;font-size:14px}
.facts dt{color:var(--soft)}
.facts dd{margin:0;overflow-wrap:anywhere}
.failed{border-color:var(--bad);border-left-width:4px}
.badge{display:inline-block;flex:none;white-space:nowrap;overflow-wrap:normal;
min-width:20px;height:20px;padding:0 5px;border-radius:10px;color:#fff;background:var(--c);
font-size:12px;font-weight:700;line-height:20px;text-align:center;text-decoration:none}
.table{overflow-x:auto;margin:0 0 10px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;vertical-align:top;padding:6px 12px 6px 0;border-bottom:1px solid var(--hair)}
th{font-size:12.5px;font-weight:600;color:var(--soft);white-space:nowrap}
td.number,th.number{text-align:right;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}
td .small{display:block}
.name{min-width:9em;overflow-wrap:anywhere}
th button{all:unset;cursor:pointer;font:inherit}
th button:focus-visible{outline:2px solid var(--link);outline-offset:2px}
th[aria-sort=ascending] button::after{content:" \\2191"}
th[aria-sort=descending] button::after{content:" \\2193"}
figure{margin:0 0 18px}
figcaption{font-size:13px;margin-top:4px;max-width:80ch}
details{margin:6px 0}
summary{cursor:pointer;color:var(--link);font-size:14px}
.record>summary{color:var(--ink);font-size:15px;overflow-wrap:anywhere}
svg{display:block;width:100%;overflow:visible}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",Arial,sans-serif;fill:var(--soft)}
svg .nested{width:100%}
.grid{stroke:var(--grid);stroke-width:1;shape-rendering:crispEdges}
.base{stroke:var(--soft);stroke-width:1;shape-rendering:crispEdges}
.row{display:grid;grid-template-columns:minmax(0,250px) minmax(0,1fr) 190px;gap:0 18px;align-items:center}
.row-label{display:flex;gap:8px;align-items:baseline;font-size:14px;line-height:1.25;overflow-wrap:anywhere;min-width:0}
.row-value{font-size:13px;text-align:right}
.range{fill:var(--c);opacity:.22}
.thin line,.heavy line{stroke:var(--c)}
.thin line{stroke-width:1.2;opacity:.75}
.heavy line{stroke-width:2.4}
.dot{fill:var(--c);stroke:var(--card);stroke-width:1}
.hollow{fill:var(--card);stroke:var(--c);stroke-width:2}
.notch{stroke:var(--c);stroke-width:1.6;opacity:.85}
.bars rect{fill:var(--c);opacity:.62;stroke:var(--card);stroke-width:.6}
.mark{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 3;opacity:.55}
.mark-median{stroke-dasharray:none;opacity:.9;stroke-width:1.4}
.box{fill:var(--c);opacity:.4}
.box-line{stroke:var(--c);stroke-width:1}
.box-median{stroke:var(--ink);stroke-width:1.6}
.segment{fill:var(--c)}
svg .segment-name{fill:#fff;font-size:11px;font-weight:600}
.framed{padding:4px 22px 24px 46px}
.axis-title{font-size:12px;color:var(--soft)}
.axis-y{margin:0 0 8px -40px}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}
.whisker{stroke:var(--c);stroke-width:1.6}
.ring{fill:none;stroke:var(--c);stroke-width:2}
svg .line-name{fill:var(--c);font-weight:700;font-size:12px;paint-order:stroke;stroke:var(--paper);stroke-width:3px}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0;padding:0;font-size:13px;
color:var(--soft)}
.key{display:inline-block;width:11px;height:11px;border-radius:3px;background:var(--c);margin-right:6px}
.s1{--c:var(--c1)}.s2{--c:var(--c2)}.s3{--c:var(--c3)}.s4{--c:var(--c4)}
.s5{--c:var(--c5)}.s6{--c:var(--c6)}.s7{--c:var(--c7)}.s8{--c:var(--c8)}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(150px,46%),1fr));gap:14px 12px}
.picture{font-size:13px;line-height:1.35;min-width:0;overflow-wrap:anywhere}
.picture img{display:block;width:100%;height:auto;aspect-ratio:4/3;object-fit:cover;border-radius:6px;
background:var(--shade);margin-bottom:6px}
.picture ul{list-style:none;margin:3px 0 0;padding:0}
.picture li{margin-top:3px}
.yes{color:var(--good)}
.no{color:var(--bad)}
footer{margin-top:44px;padding-top:14px;padding-bottom:40px;border-top:1px solid var(--hair);font-size:13px;
color:var(--soft)}
@media screen and (prefers-color-scheme:dark){.badge{color:#14161a}svg .segment-name{fill:#14161a}}
@media (max-width:720px){main,header,footer,nav{padding-left:14px;padding-right:14px}h1{font-size:23px}
.row{grid-template-columns:minmax(0,1fr) auto;gap:0 10px;padding-top:6px}
.row .lane,.row .scale{grid-column:1/3;grid-row:2}.row-axis{padding-top:0}
.card{padding:12px}.facts{grid-template-columns:minmax(0,1fr)}.facts dd{margin-bottom:5px}}
@media print{body{font-size:11pt}main,header,footer,nav{max-width:none;padding:0}nav,.download{display:none}
section{margin-top:22px}.card,figure,.picture,.row,tr{break-inside:avoid}.record,.pictures{break-inside:auto}
h2,h3,.lead,.headline{break-after:avoid}.table{overflow:visible}table{font-size:8pt}th{font-size:7.5pt}
table code{font-size:7pt}
td .small{font-size:7pt;white-space:nowrap}
th,td{padding:3px 7px 3px 0}th,td.number,th.number{white-space:normal}.name{min-width:0}.row{grid-template-columns:
minmax(0,190px) minmax(0,1fr) 165px}
pre{max-height:none;white-space:pre-wrap}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((cell, column) => {
    const button = document.createElement("button");
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "ascending";
      const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const numbers = [Number(x), Number(y)];
        const found = numbers.some(Number.isNaN) ? x.localeCompare(y) : numbers[0] - numbers[1];
        return down ? -found : found;
      };
      for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...body.rows].sort(order));
    });
  });
}
const openAll = () => { for (const item of document.querySelectorAll("details")) item.open = true; };
addEventListener("beforeprint", openAll);
const openTarget = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
};
addEventListener("hashchange", openTarget);
openTarget();
"""
