//! Who the users are: everything about one follows from their number.

/// One of the users, by number from 1.
#[derive(Clone, Copy)]
pub struct User(pub u64);

const FIRST: [&str; 32] = [
    "Ada",
    "Alan",
    "Barbara",
    "Carl",
    "Dana",
    "Edsger",
    "Emmy",
    "Frances",
    "Grace",
    "Hedy",
    "Ida",
    "Ivan",
    "Joan",
    "John",
    "Karen",
    "Katherine",
    "Leslie",
    "Lise",
    "Margaret",
    "Marie",
    "Niklaus",
    "Noether",
    "Olga",
    "Peter",
    "Radia",
    "Robin",
    "Rosa",
    "Sofia",
    "Tim",
    "Vint",
    "Wanda",
    "Yuki",
];
const SYLLABLES: [&str; 16] =
    ["ka", "re", "to", "mi", "no", "sa", "lu", "vi", "be", "do", "fa", "gi", "ho", "jo", "pe", "zu"];

impl User {
    /// Scattered over the users, in an order that is the same each time.
    pub fn scattered(count: u64, users: u64) -> impl Iterator<Item = Self> {
        // A prime that no number of users here is a multiple of: its multiples visit everybody once.
        const STRIDE: u64 = 7_368_787;
        (0..count).map(move |number| Self(1 + number * STRIDE % users))
    }

    pub fn id(self) -> String {
        uuid(0, self.0)
    }

    /// Names repeat as they do among people: each family name for one in four thousand.
    pub fn name(self) -> String {
        let (first, last) = self.names();
        format!("{first} {last}")
    }

    pub fn names(self) -> (&'static str, String) {
        // The number's bits, mixed, so that neighbours have nothing in common.
        let mixed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let pick = |shift: u32, most: u64| usize::try_from(mixed >> shift & (most - 1)).unwrap_or(0);
        let last: String = [60, 56, 52].into_iter().map(|shift| SYLLABLES[pick(shift, 16)]).collect();
        let mut letters = last.chars();
        let last = letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default();
        (FIRST[pick(40, 32)], last)
    }

    pub fn email(self) -> String {
        let (first, last) = self.names();
        format!("{first}.{last}.{}@example.com", self.0).to_lowercase()
    }
}

/// Ids rise like the `UUIDv7` ones they stand for. Each kind of row has its own.
pub fn uuid(kind: u16, number: u64) -> String {
    format!("0198c6a2-7d1e-7{:03x}-8000-{number:012x}", kind & 0xfff)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn everybody_is_somebody_else() {
        let emails: HashSet<String> = (1..=1000).map(|number| User(number).email()).collect();
        assert_eq!(emails.len(), 1000);
        let names: HashSet<String> = (1..=1000).map(|number| User(number).name()).collect();
        assert!(names.len() > 900, "{} names", names.len());
        let visited: HashSet<u64> = User::scattered(1000, 1000).map(|user| user.0).collect();
        assert_eq!((visited.len(), visited.iter().min(), visited.iter().max()), (1000, Some(&1), Some(&1000)));
    }
}
