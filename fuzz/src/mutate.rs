//! Changes inputs by a seed, so that a run can be repeated.
//!
//! Written here because no library fits the normal test command: `fuzzcheck` needs a nightly compiler, `mutatis` changes values of
//! known types and knows neither words nor splices, and the small ones for bytes (`byte-mutator`, `fuzzmutator`) are not kept up.

/// A source of numbers that look random (`SplitMix64`).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 where there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.roll() % end).unwrap_or_default()
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }

    /// A part of something of this length, mostly a short one.
    fn span(&mut self, length: usize) -> std::ops::Range<usize> {
        let from = self.below(length + 1);
        let most = if self.below(4) == 0 { length - from } else { (length - from).min(8) };
        from..from + self.below(most + 1)
    }
}

/// Longer inputs are cut: what matters fits, and a run stays short.
const LONGEST: usize = 16 * 1024;
/// Bytes that parsers treat in a way of their own.
const BYTES: &[u8] = b"\0\t\n\r \"#%&'()*+,-./09:;<=>?@AZ[\\]_`az{|}~\x7f\x80\xc2\xff";
const TEXTS: &[&str] = &["\u{feff}", "\u{e4}", "\u{2028}", "\u{85}", "\u{212a}", "\u{1f600}", "\r\n", "\n\n"];
const NUMBERS: &[&str] =
    &["0", "1", "-1", "255", "65536", "2147483648", "4294967296", "9223372036854775808", "1e999"];

/// Changes an input in one to four places. `pool` has the other inputs, `words` what inputs are made of.
pub fn mutate(dice: &mut Dice, input: &[u8], pool: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=dice.below(4) {
        change(dice, &mut bytes, pool, words);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn change(dice: &mut Dice, bytes: &mut Vec<u8>, pool: &[Vec<u8>], words: &[&str]) {
    let at = dice.below(bytes.len());
    match dice.below(12) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (dice.roll() % 8);
            }
        }
        1 => {
            if let (Some(byte), Some(new)) = (bytes.get_mut(at), dice.one_of(BYTES)) {
                *byte = *new;
            }
        }
        2 => {
            let new = dice.one_of(BYTES).copied();
            bytes.splice(at..at, new);
        }
        3 => {
            let span = dice.span(bytes.len());
            bytes.drain(span);
        }
        4 => {
            let span = dice.span(bytes.len());
            let copy = bytes[span].to_vec();
            bytes.splice(at..at, copy.repeat(1 + dice.below(3)));
        }
        5 | 6 => {
            let word = dice.one_of(words).copied().unwrap_or_default();
            bytes.splice(at..at, word.bytes());
        }
        7 => {
            let word = dice.one_of(words).copied().unwrap_or_default();
            let end = (at + word.len()).min(bytes.len());
            bytes.splice(at..end, word.bytes());
        }
        8 => {
            // A part of another input in the place of a part of this one.
            let other = dice.one_of(pool).map_or(&[][..], Vec::as_slice);
            let (from, to) = (dice.span(other.len()), dice.span(bytes.len()));
            bytes.splice(to, other[from].iter().copied());
        }
        9 => {
            let text = dice.one_of(TEXTS).copied().unwrap_or_default();
            bytes.splice(at..at, text.bytes());
        }
        10 => {
            // The digits here become another number.
            let from = bytes[at..].iter().position(u8::is_ascii_digit).map_or(at, |found| at + found);
            let end = bytes[from..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |n| from + n);
            let number = dice.one_of(NUMBERS).copied().unwrap_or_default();
            bytes.splice(from..end, number.bytes());
        }
        _ => bytes.truncate(at),
    }
}
