//! The windows of a report: an hour, a day or a month each, in a time zone.
use jiff::{ToSpan as _, tz::TimeZone};
use kernel::{
    clock::Timestamp,
    fault::{INVALID, Result},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::model::QUARTER;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    #[default]
    Total,
    Hour,
    Day,
    Month,
}

const DAY: i64 = Timestamp::DAY_MS;

/// From when to when, and in which zone.
#[derive(Debug, Clone)]
pub struct Range {
    pub from: Timestamp,
    pub to: Timestamp,
    zone: TimeZone,
    is_utc: bool,
}

impl Range {
    /// Left out: this month until now.
    pub fn read(from: Option<Timestamp>, to: Option<Timestamp>, tz: Option<&str>, now: Timestamp) -> Result<Self> {
        let zone = tz.map_or(Ok(TimeZone::UTC), TimeZone::get);
        let zone = zone.map_err(|_| INVALID.at("tz", "unknown", "must be a time zone such as Europe/Berlin"))?;
        let start = zoned(now, &zone)?.first_of_month().and_then(|first| first.start_of_day());
        let start = start.map_err(|error| INVALID.caused_by(error))?.timestamp().as_millisecond();
        let from = from.unwrap_or(Timestamp(start));
        let to = to.unwrap_or(Timestamp((now.0.div_euclid(QUARTER) + 1) * QUARTER));
        for (name, moment) in [("from", from), ("to", to)] {
            if moment.0.rem_euclid(QUARTER) != 0 {
                return Err(INVALID.at(name, "quarter", "must be a whole quarter of an hour"));
            }
        }
        if from >= to {
            return Err(INVALID.at("to", "order", "must be after from"));
        }
        if to.0 - from.0 > 400 * DAY {
            return Err(INVALID.at("from", "range", "must be at most 400 days before to"));
        }
        let is_utc = tz.is_none_or(|tz| tz.eq_ignore_ascii_case("utc"));
        Ok(Self { from, to, zone, is_utc })
    }

    /// What keeps the windows from being whole days in UTC, or days until now.
    pub fn not_days(&self, window: Window, now: Timestamp) -> Option<&'static str> {
        let is_day = |at: Timestamp| at.0.rem_euclid(DAY) == 0;
        let found = [
            ("window", window == Window::Hour),
            ("tz", !self.is_utc),
            ("from", !is_day(self.from)),
            ("to", !is_day(self.to) && self.to <= now),
        ];
        found.into_iter().find(|(_, is_so)| *is_so).map(|(field, _)| field)
    }

    /// The windows, the first and last cut to the range.
    pub fn windows(&self, window: Window) -> Result<Vec<(Timestamp, Timestamp)>> {
        if window == Window::Hour && self.to.0 - self.from.0 > 31 * DAY {
            return Err(INVALID.at("window", "range", "must be day or month for more than 31 days"));
        }
        let mut windows = vec![];
        let mut start = self.from;
        while start < self.to {
            let end = self.end(start, window)?.min(self.to);
            windows.push((start, end));
            start = end;
        }
        Ok(windows)
    }

    /// When the window of a moment ends.
    fn end(&self, at: Timestamp, window: Window) -> Result<Timestamp> {
        let here = zoned(at, &self.zone)?;
        let next = match window {
            Window::Total => return Ok(self.to),
            // Hours have the same length everywhere, and begin with those of the zone.
            Window::Hour => {
                let into = i64::from(here.minute()) * 60_000;
                return Ok(Timestamp(at.0 - into + 3_600_000));
            }
            Window::Day => {
                here.start_of_day().and_then(|day| day.checked_add(1.day())).and_then(|day| day.start_of_day())
            }
            Window::Month => here
                .first_of_month()
                .and_then(|first| first.checked_add(1.month()))
                .and_then(|first| first.start_of_day()),
        };
        let next = next.map_err(|error| INVALID.caused_by(error))?.timestamp().as_millisecond();
        Ok(Timestamp(next.max(at.0 + QUARTER)))
    }
}

fn zoned(at: Timestamp, zone: &TimeZone) -> Result<jiff::Zoned> {
    let moment = jiff::Timestamp::from_millisecond(at.0).map_err(|error| INVALID.caused_by(error))?;
    Ok(moment.to_zoned(zone.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    fn windows(from: &str, to: &str, tz: &str, window: Window) -> Vec<String> {
        let range = Range::read(Some(at(from)), Some(at(to)), Some(tz), at(to)).unwrap();
        range
            .windows(window)
            .unwrap()
            .into_iter()
            .map(|(from, to)| format!("{from} {to}").replace(":00.000Z", ""))
            .collect()
    }

    #[test]
    fn days_begin_when_they_begin_in_the_zone() {
        // The clocks go forward on the 29th.
        let days = windows("2026-03-27T23:00:00Z", "2026-03-30T22:00:00Z", "Europe/Berlin", Window::Day);
        assert_eq!(
            days,
            [
                "2026-03-27T23:00 2026-03-28T23:00",
                "2026-03-28T23:00 2026-03-29T22:00",
                "2026-03-29T22:00 2026-03-30T22:00"
            ]
        );
        let months = windows("2026-01-31T18:30:00Z", "2026-03-01T00:00:00Z", "Asia/Kolkata", Window::Month);
        assert_eq!(months, ["2026-01-31T18:30 2026-02-28T18:30", "2026-02-28T18:30 2026-03-01T00:00"]);
        let hours = windows("2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z", "Asia/Kathmandu", Window::Hour);
        assert_eq!(hours[0], "2026-01-01T00:00 2026-01-01T00:15", "hours of the zone: {hours:?}");
        assert_eq!(hours.len(), 3);
    }

    #[test]
    fn a_range_has_an_order_a_length_and_whole_quarters() {
        let read = |from, to, tz| Range::read(Some(at(from)), Some(at(to)), tz, at("2026-02-01T00:00:00Z"));
        assert!(read("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", None).is_ok());
        assert!(read("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", None).is_err());
        assert!(read("2026-01-01T00:01:00Z", "2026-01-02T00:00:00Z", None).is_err());
        assert!(read("2024-01-01T00:00:00Z", "2026-01-02T00:00:00Z", None).is_err());
        assert!(read("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", Some("Mars/Base")).is_err());
    }
}
