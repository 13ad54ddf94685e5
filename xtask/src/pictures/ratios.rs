//! README's picture: some ratios as bars, DPDK as the line at 1, what was wanted as a tick.

use std::fmt::Write;

use super::svg::{escaped, head};
use crate::figures::{Compared, Figures};

const WIDTH: f64 = 720.0;
/// Where bars begin, and where the longest may end, before its figure.
const LEFT: f64 = 270.0;
const RIGHT: f64 = 660.0;
const TOP: f64 = 44.0;
const STEP: f64 = 34.0;
const BAR: f64 = 18.0;

/// Follows the reader's choice of light or dark, and brings its own ground for pages that do not.
const STYLE: &str = "<style>
svg{--ground:#fff;--ink:#1c2024;--dim:#5f6972;--met:#1f6feb;--missed:#c4620a;--line:#8b949e}
@media(prefers-color-scheme:dark){svg{--ground:#0d1117;--ink:#e6e9ec;--dim:#9aa4ae;--met:#58a6ff;\
--missed:#e3a04a}}
text{font:14px system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:var(--ink)}
.dim{fill:var(--dim);font-size:12px}.end{text-anchor:end}.middle{text-anchor:middle}
.met{fill:var(--met)}.missed{fill:var(--missed)}.line{stroke:var(--line)}.tick{stroke:var(--ink)}
</style>
";

pub(super) fn draw(figures: &Figures) -> String {
    let rows: Vec<&Compared> = figures
        .compared
        .iter()
        .filter(|row| row.picture.is_some())
        .collect();
    let bottom = TOP + STEP * rows.len() as f64;
    let height = bottom + 34.0;
    let mut svg = head(WIDTH, height, "linerate's speed as a multiple of DPDK's");
    svg += STYLE;
    let _ = writeln!(
        svg,
        "<rect width=\"{WIDTH}\" height=\"{height}\" rx=\"6\" fill=\"var(--ground)\"/>"
    );
    let longest = rows.iter().map(|row| row.ratio).fold(1.0, f64::max);
    // How long a bar of ratio 1 is.
    let unit = (RIGHT - LEFT) / longest;
    let one = LEFT + unit;
    let _ = writeln!(
        svg,
        "<text class=\"dim middle\" x=\"{one}\" y=\"22\">DPDK = 1</text>\n\
         <line class=\"line\" stroke-dasharray=\"3 3\" \
         x1=\"{one}\" x2=\"{one}\" y1=\"30\" y2=\"{bottom}\"/>"
    );
    for (row, number) in rows.iter().zip(0u32..) {
        bar(&mut svg, row, unit, TOP + STEP * f64::from(number));
    }
    let _ = writeln!(
        svg,
        "<text class=\"dim\" x=\"16\" y=\"{}\">speed as a multiple of DPDK's, measured \
         in turns, {}; a tick is what was wanted</text>\n</svg>",
        height - 12.0,
        escaped(&figures.month)
    );
    svg
}

fn bar(svg: &mut String, row: &Compared, unit: f64, y: f64) {
    let class = if row.is_met() { "met" } else { "missed" };
    let (length, middle) = (row.ratio * unit, y + BAR / 2.0 + 5.0);
    let label = escaped(row.picture.as_deref().unwrap_or_default());
    let said = if row.is_met() { "" } else { ": missed" };
    let _ = writeln!(
        svg,
        "<text class=\"end\" x=\"{}\" y=\"{middle}\">{label}</text>\n\
         <rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" \
         height=\"{BAR}\" rx=\"2\"/>",
        LEFT - 12.0
    );
    let mut end = LEFT + length;
    if let Some(target) = row.target() {
        let x = LEFT + target * unit;
        end = end.max(x);
        let _ = writeln!(
            svg,
            "<line class=\"tick\" stroke-width=\"2\" x1=\"{x:.1}\" x2=\"{x:.1}\" \
             y1=\"{}\" y2=\"{}\"/>",
            y - 4.0,
            y + BAR + 4.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{middle}\">{:.2}{said}</text>",
        end + 8.0,
        row.ratio
    );
}
