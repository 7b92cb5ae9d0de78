//! Colors that admins chose, and the contrast of text on them and beside them (WCAG 2.2, 1.4.3).
use std::fmt;

/// What text needs to stand out from what is behind it.
const READABLE: f64 = 4.5;
/// In how many steps a colour is brought closer to black or white.
const STEPS: u16 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Color([u8; 3]);

impl Color {
    const BLACK: Self = Self([0; 3]);
    const WHITE: Self = Self([255; 3]);
    /// What text is hardest to read on, in the light and in the dark scheme of the stylesheet: the page behind a card is
    /// darker than the card.
    pub const PAPER: Self = Self([0xfa, 0xfa, 0xf9]);
    pub const NIGHT: Self = Self([0x14, 0x16, 0x1a]);

    /// As in `#1d4ed8`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(&text.strip_prefix('#')?.to_ascii_lowercase())
    }

    /// Six digits, written in one way.
    pub fn read(digits: &str) -> Option<Self> {
        let is_one = digits.len() == 6 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let part = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        is_one.then(|| Some(Self([part(0)?, part(2)?, part(4)?])))?
    }

    pub fn digits(self) -> String {
        let [red, green, blue] = self.0;
        format!("{red:02x}{green:02x}{blue:02x}")
    }

    /// Black or white, whichever is easier to read on this. One of them always is.
    #[must_use]
    pub fn ink(self) -> Self {
        if self.contrast(Self::WHITE) >= self.contrast(Self::BLACK) { Self::WHITE } else { Self::BLACK }
    }

    /// This colour, or the closest to it that can be read on that paper.
    #[must_use]
    pub fn readable_on(self, paper: Self) -> Self {
        let far = paper.ink();
        let mut closer = (0..=STEPS).map(|step| self.toward(far, step));
        closer.find(|color| color.contrast(paper) >= READABLE).unwrap_or(far)
    }

    /// How far two colours are apart: from 1 to 21.
    fn contrast(self, other: Self) -> f64 {
        let (one, two) = (self.luminance() + 0.05, other.luminance() + 0.05);
        one.max(two) / one.min(two)
    }

    fn luminance(self) -> f64 {
        let [red, green, blue] = self.0.map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    fn toward(self, far: Self, step: u16) -> Self {
        let mix = |at: usize| {
            let mixed = (u16::from(self.0[at]) * (STEPS - step) + u16::from(far.0[at]) * step) / STEPS;
            u8::try_from(mixed).unwrap_or(u8::MAX)
        };
        Self([mix(0), mix(1), mix(2)])
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.digits())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_somebody_chooses_can_be_read(parts: [u8; 3]) {
            let color = Color(parts);
            prop_assert!(color.contrast(color.ink()) >= READABLE, "{color} on its own button");
            for paper in [Color::PAPER, Color::NIGHT] {
                let ink = color.readable_on(paper);
                prop_assert!(ink.contrast(paper) >= READABLE, "{color} as {ink} on {paper}");
                prop_assert_eq!(ink == color, color.contrast(paper) >= READABLE, "what can be read stays as it is");
            }
            prop_assert_eq!(Color::parse(&color.to_string()), Some(color));
        }

        #[test]
        fn nothing_but_a_colour_is_one(text: String) {
            let is_one = text.len() == 7 && text.starts_with('#') && text[1..].chars().all(|c| c.is_ascii_hexdigit());
            prop_assert_eq!(Color::parse(&text).is_some(), is_one);
        }
    }

    #[test]
    fn contrast_is_what_the_standard_says() {
        let of = |one: &str, two: &str| Color::parse(one).unwrap().contrast(Color::parse(two).unwrap());
        assert!((of("#000000", "#ffffff") - 21.0).abs() < 1e-9);
        assert!((of("#777777", "#ffffff") - 4.48).abs() < 0.01, "the grey that just fails");
        assert!((of("#1d4ed8", "#ffffff") - 6.70).abs() < 0.01);
        for wrong in ["", "#", "#fff", "1d4ed8", "#1d4ed", "#1d4ed88", "#1d4edg", "#+1d4ed", "#\u{e9}1d4e"] {
            assert_eq!(Color::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Color::read("1D4ED8"), None, "one address for one stylesheet");
    }
}
