//! Reports as one HTML page that needs nothing else.

const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--dim:#667078;--line:#e3e7eb;--card:#f7f9fa;
--c0:#2f6fde;--c1:#e08a1e;--c2:#c2414b;--c3:#9aa5b1;--c4:#5d6975;--c5:#159a86}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e9ec;--dim:#97a1ab;--line:#2b3138;--card:#1b1f24;
--c0:#6aa2ff;--c1:#f2ab4d;--c2:#f0717b;--c3:#77828e;--c4:#aab4be;--c5:#3fc7b0}}
body{margin:0 auto;max-width:60rem;padding:2rem 1.25rem 4rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.7rem;margin:0}h2{font-size:1.15rem;margin:2.6rem 0 .2rem}p{margin:.3rem 0}.dim,.note{color:var(--dim)}
.note{font-size:.88rem}.facts{display:flex;flex-wrap:wrap;gap:.8rem;margin:1.4rem 0}
.facts div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem 1rem;min-width:8.5rem}
.facts b{display:block;font-size:1.5rem;font-weight:600}.facts span{color:var(--dim);font-size:.85rem}
svg{width:100%;height:auto;margin-top:.6rem}text{font:12px system-ui,sans-serif;fill:var(--fg)}
.mid{text-anchor:middle}.tick{text-anchor:end;fill:var(--dim)}.unit{fill:var(--dim)}
.curve{fill:none;stroke-width:2}.rule{stroke:var(--line)}.stem{stroke:var(--line);stroke-width:3}
.s0{fill:var(--c0);background:var(--c0)}.s1{fill:var(--c1);background:var(--c1)}.s2{fill:var(--c2);background:var(--c2)}
.s3{fill:var(--c3);background:var(--c3)}.s4{fill:var(--c4);background:var(--c4)}.s5{fill:var(--c5);background:var(--c5)}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.4rem;font-size:.88rem}
.legend i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.45em}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;margin:.8rem 0;font-variant-numeric:tabular-nums}
th{font-weight:500;color:var(--dim)}td,th{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
td:first-child,th:first-child{text-align:left;padding-left:0}
.wide{white-space:normal!important;text-align:left!important;min-width:22rem}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:0 1.5rem}
";

/// A page with this title around `body`.
pub(crate) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\n{body}</body></html>\n"
    )
}
