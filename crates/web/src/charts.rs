//! Where the shapes of a chart go. Templates draw them and their labels; the arithmetic is here.
use minijinja::{Environment, Error, ErrorKind, Value, context};

pub fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter("count", count);
    environment.add_function("chart_scale", |values: Vec<f64>| scale(&values));
    environment.add_function("chart_line", |values: Vec<f64>, top: f64| line(&values, top));
    environment.add_function("chart_spark", |values: Vec<f64>| spark(&values));
    environment.add_function("chart_totals", |series: Vec<Vec<f64>>| totals(&series));
    environment.add_function("chart_minus", |all: Vec<f64>, part: Vec<f64>| {
        all.iter().zip(&part).map(|(all, part)| all - part).collect::<Vec<_>>()
    });
    environment.add_function("chart_bars", |series: Vec<Vec<f64>>, top: f64| bars(&series, top));
}

/// Into how many parts the grid divides a chart.
const PARTS: u32 = 4;
/// The part of a column's place that its bar takes.
const BAR: f64 = 0.62;
/// The height of a sparkline, and what is kept free above and below it.
const SPARK: (f64, f64) = (28.0, 2.0);

/// `4182` as `4,182`, `4.25` as `4.3`.
pub fn count(number: f64) -> String {
    let rounded = (number * 10.0).round() / 10.0;
    let text = if rounded.fract() == 0.0 { format!("{rounded:.0}") } else { format!("{rounded:.1}") };
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let rest = rest.map(|rest| format!(".{rest}")).unwrap_or_default();
    format!("{sign}{grouped}{rest}")
}

/// The highest value of the axis, and the labels of the grid from top to bottom. The steps are round whole numbers.
fn scale(values: &[f64]) -> Value {
    let highest = values.iter().copied().fold(0.0, f64::max);
    let step = step(highest / f64::from(PARTS));
    let labels = (0..=PARTS).rev().map(|part| count(step * f64::from(part))).collect::<Vec<_>>();
    context! { top => step * f64::from(PARTS), labels }
}

/// 1, 2, 2.5 or 5 times a power of ten, where that is a whole number.
fn step(wanted: f64) -> f64 {
    let mut steps = (0..18).flat_map(|power| [1.0, 2.0, 2.5, 5.0].map(|factor| factor * 10_f64.powi(power)));
    steps.find(|step| step.fract() == 0.0 && *step >= wanted).unwrap_or(wanted)
}

/// A line from 0 to `top` and the area under it, in a box of 100 by 100.
fn line(values: &[f64], top: f64) -> Value {
    path(values, (0.0, top), (100.0, 0.0))
}

/// A line from the lowest value to the highest, in a box of 100 by 28.
fn spark(values: &[f64]) -> Value {
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(*one), high.max(*one)));
    path(values, (low, high), SPARK)
}

fn path(values: &[f64], (low, high): (f64, f64), (height, margin): (f64, f64)) -> Value {
    let range = if high > low { high - low } else { 1.0 };
    let step = if values.len() > 1 { 100.0 / size(values.len() - 1) } else { 100.0 };
    let points = values.iter().enumerate().map(|(at, value)| {
        let y = height - margin - (value - low) / range * (height - 2.0 * margin);
        format!("{:.1} {y:.1}", size(at) * step)
    });
    let points = points.collect::<Vec<_>>().join("L");
    let line = if points.is_empty() { String::new() } else { format!("M{points}") };
    let area = if points.is_empty() { String::new() } else { format!("{line}V{height}H0Z") };
    context! { line, area }
}

/// Bars side by side, each with its parts stacked from the bottom, as percentages of the box: `series` has a list for each
/// part, with a value for each bar.
fn bars(series: &[Vec<f64>], top: f64) -> Result<Value, Error> {
    let columns = series.first().map_or(0, Vec::len);
    if series.iter().any(|one| one.len() != columns) {
        return Err(Error::new(ErrorKind::InvalidOperation, "every series has a value for each bar"));
    }
    let place = 100.0 / size(columns.max(1));
    let top = if top > 0.0 { top } else { 1.0 };
    let bars = (0..columns).map(|column| {
        let mut below = 0.0;
        let parts = series.iter().filter_map(|values| values.get(column)).map(|value| {
            let height = value / top * 100.0;
            below += height;
            context! { y => format!("{:.2}", 100.0 - below), height => format!("{height:.2}") }
        });
        let parts = parts.collect::<Vec<_>>();
        let x = size(column) * place + place * (1.0 - BAR) / 2.0;
        context! { x => format!("{x:.2}"), width => format!("{:.2}", place * BAR), parts }
    });
    Ok(Value::from(bars.collect::<Vec<_>>()))
}

/// The sum of each column of the series.
fn totals(series: &[Vec<f64>]) -> Vec<f64> {
    let columns = series.iter().map(Vec::len).max().unwrap_or_default();
    (0..columns).map(|at| series.iter().filter_map(|values| values.get(at)).sum()).collect()
}

/// A position in a list, to reckon with.
fn size(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &Value, name: &str) -> String {
        value.get_attr(name).expect("an attribute").to_string()
    }

    #[test]
    fn numbers_are_grouped() {
        let cases = [
            (0.0, "0"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (1_234_567.0, "1,234,567"),
            (4.25, "4.3"),
            (-1200.5, "-1,200.5"),
        ];
        for (number, expected) in cases {
            assert_eq!(count(number), expected);
        }
    }

    #[test]
    fn the_axis_ends_at_a_round_number_above_every_value() {
        for (highest, top) in
            [(0.0, "4"), (3.0, "4"), (5.0, "8"), (9.0, "20"), (92.0, "100"), (361.0, "400"), (1001.0, "2,000")]
        {
            let found = scale(&[1.0, highest]);
            let labels = found.get_attr("labels").expect("labels");
            assert_eq!(labels.get_item_by_index(0).expect("the highest").to_string(), top, "{highest}");
            assert_eq!(labels.get_item_by_index(4).expect("the lowest").to_string(), "0");
        }
    }

    #[test]
    fn a_line_runs_from_edge_to_edge() {
        let drawn = line(&[0.0, 50.0, 100.0], 100.0);
        assert_eq!(text(&drawn, "line"), "M0.0 100.0L50.0 50.0L100.0 0.0");
        assert_eq!(text(&drawn, "area"), "M0.0 100.0L50.0 50.0L100.0 0.0V100H0Z");
        assert_eq!(text(&spark(&[7.0]), "line"), "M0.0 26.0", "a single value is no division by zero");
        assert_eq!(text(&line(&[], 0.0), "area"), "", "nothing is drawn from nothing");
    }

    #[test]
    fn bars_are_stacked_from_the_bottom() {
        let drawn = bars(&[vec![25.0, 50.0], vec![25.0, 0.0]], 100.0).expect("bars");
        let first = drawn.get_item_by_index(0).expect("a bar").get_attr("parts").expect("its parts");
        let part = |at| first.get_item_by_index(at).expect("a part");
        assert_eq!((text(&part(0), "y"), text(&part(0), "height")), ("75.00".into(), "25.00".into()));
        assert_eq!((text(&part(1), "y"), text(&part(1), "height")), ("50.00".into(), "25.00".into()));
        assert!(bars(&[vec![1.0], vec![]], 1.0).is_err(), "a series is too short");
    }
}
