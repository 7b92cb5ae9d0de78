//! Amounts in words: minor units and a currency as people read them.
use minijinja::{Environment, Value};

pub fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter("money", |amount: Value, currency: Option<String>| {
        money(&amount.to_string(), currency.as_deref().unwrap_or("usd"))
    });
}

/// The places of a currency's major unit.
fn places(currency: &str) -> usize {
    match currency {
        "bif" | "clp" | "djf" | "gnf" | "jpy" | "kmf" | "krw" | "mga" | "pyg" | "rwf" | "ugx" | "vnd" | "vuv"
        | "xaf" | "xof" | "xpf" => 0,
        "bhd" | "iqd" | "jod" | "kwd" | "lyd" | "omr" | "tnd" => 3,
        _ => 2,
    }
}

/// `2050` and `usd` as `20.50 USD`. Decimals of minor units are left out.
fn money(minor: &str, currency: &str) -> String {
    let (sign, digits) = minor.strip_prefix('-').map_or(("", minor), |digits| ("-", digits));
    let digits = digits.split('.').next().unwrap_or_default();
    let places = places(currency);
    let padded = format!("{digits:0>width$}", width = places + 1);
    let (whole, rest) = padded.split_at(padded.len() - places);
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let dot = if places > 0 { "." } else { "" };
    format!("{sign}{grouped}{dot}{rest} {}", currency.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::money;

    #[test]
    fn amounts_are_written_by_the_places_of_their_currency() {
        let said =
            [("2050", "usd"), ("5", "usd"), ("-12345678", "eur"), ("2050", "jpy"), ("1234", "kwd"), ("99.5", "usd")];
        let said = said.map(|(minor, currency)| money(minor, currency));
        assert_eq!(said, ["20.50 USD", "0.05 USD", "-123,456.78 EUR", "2,050 JPY", "1.234 KWD", "0.99 USD"]);
    }
}
