//! Reports as one self-contained HTML page.

const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--dim:#5f6972;--line:#e3e7eb;--card:#f7f9fa;
--good:#177245;--warn:#a05a00;--bad:#b3261e;
--c0:#2f6fde;--c1:#e08a1e;--c2:#c2414b;--c3:#9aa5b1;--c4:#5d6975;--c5:#159a86;--c6:#8a5cd0;
--c7:#b0892b}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e9ec;--dim:#9aa4ae;--line:#2b3138;
--card:#1b1f24;
--good:#5fce96;--warn:#f2b35c;--bad:#ff8a80;
--c0:#6aa2ff;--c1:#f2ab4d;--c2:#f0717b;--c3:#77828e;--c4:#aab4be;--c5:#3fc7b0;--c6:#b795f0;
--c7:#d8b75e}}
body{margin:0 auto;max-width:64rem;padding:2rem 1.25rem 4rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}
*{box-sizing:border-box}h1{font-size:1.7rem;margin:0;line-height:1.2}
h2{font-size:1.15rem;margin:2.6rem 0 .2rem}h3{font-size:1rem;margin:1.4rem 0 .2rem}
p{margin:.3rem 0}.dim,.note{color:var(--dim)}
.note{font-size:.88rem}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.2rem,1fr));gap:.8rem;
margin:1.4rem 0}
.facts div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;
padding:.6rem 1rem}
.facts b{display:block;font-size:1.5rem;font-weight:600}
.facts span{color:var(--dim);font-size:.85rem}
.chart{container-type:inline-size}svg{width:100%;height:auto;margin-top:.6rem;display:block}
.small{display:none}
@container (max-width:34rem){.small{display:block}.big{display:none}}
text{font:12px system-ui,sans-serif;fill:var(--fg)}
.mid{text-anchor:middle}.tick{text-anchor:end;fill:var(--dim)}.unit{fill:var(--dim)}
.curve{fill:none;stroke-width:2}.dashed{stroke-dasharray:6 4;stroke-width:1.6}
.rule{stroke:var(--line)}.stem{stroke:var(--line);stroke-width:3}
.box{fill:var(--card);stroke-width:1.6}
.s0{fill:var(--c0);background:var(--c0)}.s1{fill:var(--c1);background:var(--c1)}
.s2{fill:var(--c2);background:var(--c2)}
.s3{fill:var(--c3);background:var(--c3)}.s4{fill:var(--c4);background:var(--c4)}
.s5{fill:var(--c5);background:var(--c5)}
.s6{fill:var(--c6);background:var(--c6)}.s7{fill:var(--c7);background:var(--c7)}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.4rem;font-size:.88rem}
.legend i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.45em}
.legend .key{display:inline-block;width:2.1em;height:.9em;margin:0 .45em 0 0;vertical-align:-.1em}
.p1{stroke-dasharray:9 4}.p2{stroke-dasharray:2 3}.p3{stroke-dasharray:9 3 2 3}
.p4{stroke-dasharray:14 5}
.p5{stroke-dasharray:5 3}.p6{stroke-dasharray:14 3 2 3 2 3}.p7{stroke-dasharray:3 6}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;margin:.8rem 0;font-variant-numeric:tabular-nums}
th{font-weight:500;color:var(--dim)}
td,th{padding:.28rem .45rem;text-align:right;border-bottom:1px solid var(--line);
white-space:nowrap;vertical-align:top}
td.words,th.words{text-align:left}td:first-child,th:first-child{text-align:left;padding-left:0}
.wide{white-space:normal!important;text-align:left!important;min-width:14rem}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}
.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}
.l6{stroke:var(--c6)}.l7{stroke:var(--c7)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(20rem,100%),1fr));gap:0 1.5rem}
.verdict{border:1px solid var(--line);border-left:.4rem solid var(--tone);border-radius:.5rem;
background:var(--card);padding:.8rem 1.1rem;margin:1.2rem 0}
.verdict>p:first-child{margin:0}.verdict b{color:var(--tone);font-size:1.25rem;margin-right:.6rem}
.verdict ul,.plain{margin:.4rem 0 0;padding-left:1.2rem}.verdict li{margin:.15rem 0}
.good{--tone:var(--good)}.warn{--tone:var(--warn)}.bad{--tone:var(--bad)}.tone{color:var(--tone)}
.chip{display:inline-block;border:1px solid var(--line);border-radius:1rem;padding:.05rem .7rem;
font-size:.88rem;background:var(--bg)}
dl{display:grid;grid-template-columns:minmax(7rem,auto) 1fr;gap:.2rem 1.2rem;font-size:.88rem;
margin:.6rem 0}
dt{color:var(--dim)}dd{margin:0;min-width:0;overflow-wrap:anywhere}
code{font:.92em ui-monospace,monospace;overflow-wrap:anywhere}
@page{margin:13mm}
@media print{:root{color-scheme:light;--bg:#fff;--fg:#1c2024;--dim:#4c555d;--line:#cfd5da;
--card:#f7f9fa;
--good:#177245;--warn:#a05a00;--bad:#b3261e;
--c0:#2f6fde;--c1:#e08a1e;--c2:#c2414b;--c3:#9aa5b1;--c4:#5d6975;--c5:#159a86;--c6:#8a5cd0;
--c7:#b0892b}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
body{max-width:none;padding:0;font-size:10pt}.scroll{overflow:visible}
table{font-size:7.4pt;width:100%}td,th{padding:.14rem .28rem}th{white-space:normal}
td.wide{min-width:0}
thead{display:table-header-group}tr,.chart,.verdict,.facts div,dt,dd{break-inside:avoid}
h1,h2,h3,.note{break-after:avoid}dl,.note,.legend{font-size:8pt}.facts b{font-size:13pt}}
";

/// A page with this title around `body`.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\n{body}</body></html>\n"
    )
}
