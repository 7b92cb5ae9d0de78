//! Money: whole minor units and exact decimals of them. No floating point anywhere.
use std::{fmt, iter::Sum, ops::Add};

use serde::{Serialize, Serializer};

/// The places of a decimal.
const PLACES: u32 = 12;
const ONE: i128 = 10_i128.pow(PLACES);

/// Minor units with twelve places, such as a unit price of `0.04`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Exact(i128);

impl Exact {
    /// A decimal of up to twelve places.
    pub fn parse(text: &str) -> Option<Self> {
        let (text, sign) = text.strip_prefix('-').map_or((text, 1), |rest| (rest, -1));
        let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(places) || places.len() > PLACES as usize || whole.len() > 18 {
            return None;
        }
        let fraction: i128 = format!("{places:0<12}").parse().ok()?;
        Some(Self(sign * (whole.parse::<i128>().ok()?.checked_mul(ONE)? + fraction)))
    }

    pub fn whole(units: i64) -> Self {
        Self(i128::from(units) * ONE)
    }

    /// So many times as much; nothing where that is more than any invoice has.
    pub fn times(self, quantity: i64) -> Option<Self> {
        self.0.checked_mul(i128::from(quantity)).map(Self)
    }

    /// A share of it: `part` of `whole`.
    #[must_use]
    pub fn share(self, part: i64, whole: i64) -> Self {
        if whole <= 0 {
            return Self(0);
        }
        self.times(part).map_or(Self(0), |product| Self(product.0.div_euclid(i128::from(whole))))
    }

    /// Whole minor units, half to even.
    pub fn round(self) -> i64 {
        let (units, rest) = (self.0.div_euclid(ONE), self.0.rem_euclid(ONE));
        let up = rest * 2 > ONE || (rest * 2 == ONE && units % 2 != 0);
        i64::try_from(units + i128::from(up)).unwrap_or(i64::MAX)
    }

    /// So many percent of an amount, rounded down.
    pub fn percent_of(self, amount: i64) -> i64 {
        let exact = self.times(amount).map_or(0, |product| product.0.div_euclid(100 * ONE));
        i64::try_from(exact).unwrap_or(i64::MAX)
    }

    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// So many hundredths of a percent of `whole`; nothing where there is no whole.
    pub fn basis_points_of(self, whole: Self) -> Option<i64> {
        if whole.0 <= 0 {
            return None;
        }
        i64::try_from(self.0.checked_mul(10_000)?.div_euclid(whole.0)).ok()
    }
}

/// What a quantity costs at a unit price, rounded once.
pub fn line(quantity: i64, unit_price: &str) -> Option<i64> {
    Exact::parse(unit_price)?.times(quantity).map(Exact::round)
}

impl Add for Exact {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Exact {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self(0), |sum, one| sum + one)
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, size) = (if self.0 < 0 { "-" } else { "" }, self.0.abs());
        let fraction = format!("{:012}", size % ONE);
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{}{dot}{fraction}", size / ONE)
    }
}

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl schemars::JsonSchema for Exact {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Exact".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": ["12.5"] })
    }
    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_rounded_once_and_half_to_even() {
        assert_eq!(line(3, "0.1"), Some(0));
        assert_eq!(line(5, "0.1"), Some(0), "a half goes to the even side");
        assert_eq!(line(15, "0.1"), Some(2));
        assert_eq!(line(25, "0.1"), Some(2));
        assert_eq!(line(-15, "0.1"), Some(-2));
        assert_eq!(line(1_000_000, "0.04"), Some(40_000));
        assert_eq!(line(i64::MAX, "999999999999999.999999999999"), None, "no overflow goes unnoticed");
    }

    #[test]
    fn decimals_are_written_as_they_are_read() {
        for text in ["0", "0.04", "12.5", "-3.000000000001"] {
            assert_eq!(Exact::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", ".5", "1.", "1e3", "0.0000000000001", "NaN", "+1"] {
            assert_eq!(Exact::parse(wrong), None, "{wrong}");
        }
    }
}
