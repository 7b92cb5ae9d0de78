//! The figures as a picture: a bar for each goal, how far it was reached, with the line that it is to pass.
use crate::figure::Figure;

const ROW: usize = 26;
const TOP: usize = 48;
/// Where the names end and the bars begin, where the goal's line is, and how far a bar may go.
const BARS: f64 = 640.0;
const GOAL: f64 = 150.0;
const MOST: f64 = 2.0;
const WIDTH: usize = 1460;

/// One SVG with everything in it.
pub fn svg(figures: &[Figure]) -> String {
    let height = TOP + ROW * figures.len() + 16;
    let rows: String = figures.iter().enumerate().map(|(place, figure)| row(TOP + ROW * place, figure)).collect();
    let line = BARS + GOAL;
    let bottom = height - 12;
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="13">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="16" y="28" font-size="16" font-weight="600" fill="#111827">Beside the limits of the same run</text>
<text x="{line}" y="28" text-anchor="middle" fill="#374151">goal</text>
{rows}<line x1="{line}" y1="36" x2="{line}" y2="{bottom}" stroke="#111827" stroke-dasharray="4 3"/>
</svg>
"##
    )
}

fn row(top: usize, figure: &Figure) -> String {
    let [scenario, what, ours, limit, ratio, goal, _] = figure.cells().map(|cell| escaped(&cell));
    let baseline = top + 17;
    let bar = figure.reached().map_or_else(String::new, |reached| {
        let width = GOAL * if reached.is_finite() { reached.clamp(0.0, MOST) } else { 0.0 };
        let colour = if figure.is_met() == Some(true) { "#0f766e" } else { "#b45309" };
        let y = top + 5;
        format!(r#"<rect x="{BARS}" y="{y}" width="{width:.0}" height="16" rx="2" fill="{colour}"/>"#)
    });
    let end = BARS + GOAL * MOST + 12.0;
    let goal = if goal.is_empty() { goal } else { format!(", goal {goal}") };
    format!(
        r##"<text x="16" y="{baseline}" font-weight="600" fill="#111827">{scenario}</text><text x="110" y="{baseline}" fill="#374151">{what}</text>{bar}<text x="{end}" y="{baseline}" fill="#111827">{ratio} ({ours}; {limit}){goal}</text>
"##
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        figure::{Goal, Unit},
        rounds::Sides,
    };

    fn figure(what: &'static str, ours: f64, goal: Option<Goal>) -> Figure {
        let samples = Sides { limit: vec![100.0], ours: vec![ours] };
        Figure { scenario: "reads", what, unit: Unit::PerSecond, samples, goal }
    }

    #[test]
    fn a_bar_passes_the_line_when_its_goal_is_met() {
        let drawn = svg(&[
            figure("half of it", 100.0, Some(Goal::Ratio(0.5))),
            figure("too much", 300.0, Some(Goal::RatioAtMost(1.5))),
            figure("a < b & \"c\"", 1.0, None),
        ]);
        assert!(drawn.contains(r##"width="300" height="16" rx="2" fill="#0f766e""##), "twice the goal: {drawn}");
        assert!(drawn.contains(r##"width="75" height="16" rx="2" fill="#b45309""##), "half of the goal");
        assert_eq!(drawn.matches("height=\"16\"").count(), 2, "no goal, no bar");
        assert!(drawn.contains("a &lt; b &amp; &quot;c&quot;"));
        assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    }
}
