//! The skills of the marketplace: everything about one follows from its number.
use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::sizes::{mixed, pick};

/// One of `count` skills, by number from 0.
#[derive(Clone, Copy)]
pub struct Shape {
    pub number: u64,
    pub count: u64,
}

/// Users who install, star and rate. One user can install a thousand skills at most.
pub const USERS: u64 = 2_000;
/// Skills of an organization; a thousand are allowed.
const OF_ORG: u64 = 200;
/// A tag that every third skill has.
pub const COMMON_TAG: &str = "agent";
pub const TOPICS: [&str; 40] = [
    "pdf",
    "csv",
    "git",
    "sql",
    "mail",
    "calendar",
    "invoice",
    "chart",
    "image",
    "audio",
    "video",
    "json",
    "yaml",
    "docker",
    "linux",
    "python",
    "rust",
    "java",
    "web",
    "html",
    "css",
    "testing",
    "security",
    "crypto",
    "search",
    "translation",
    "writing",
    "research",
    "finance",
    "legal",
    "health",
    "travel",
    "music",
    "maps",
    "weather",
    "games",
    "robots",
    "sensors",
    "energy",
    "law",
];
pub const ACTIONS: [&str; 20] = [
    "reader", "writer", "checker", "builder", "cleaner", "finder", "merger", "splitter", "planner", "tracker",
    "painter", "sorter", "loader", "packer", "parser", "tester", "viewer", "helper", "tutor", "guard",
];
const SYLLABLES: [&str; 16] =
    ["ka", "re", "to", "mi", "no", "sa", "lu", "vi", "be", "do", "fa", "gi", "ho", "jo", "pe", "zu"];
/// The words of descriptions, of three syllables.
const VOCABULARY: f64 = 4096.0;
const WORDS: u64 = 12;
const SHORTEST_BEGINNING: usize = 3;

fn syllables(number: u64, count: u32) -> String {
    let place = |place: u32| usize::try_from(number >> (4 * place) & 15).unwrap_or(0);
    (0..count).rev().map(|at| SYLLABLES[place(at)]).collect()
}

impl Shape {
    /// Skills that are scattered over all of them, the same ones each time.
    pub fn scattered(some: u64, count: u64) -> impl Iterator<Item = Self> {
        (0..some).map(move |at| Self { number: pick(at, 99, count.max(2) - 1) + 1, count })
    }

    fn topic(self) -> &'static str {
        TOPICS[usize::try_from(pick(self.number, 1, TOPICS.len() as u64)).unwrap_or(0)]
    }

    fn action(self) -> &'static str {
        ACTIONS[usize::try_from(pick(self.number, 2, ACTIONS.len() as u64)).unwrap_or(0)]
    }

    /// The last part is a skill's own.
    pub fn name(self) -> String {
        format!("{}-{}-{}", self.topic(), self.action(), syllables(self.number, 6))
    }

    /// Words as in texts: the one at place n is n times rarer than the first.
    pub fn own_words(self) -> Vec<String> {
        let word = |at: u64| {
            #[expect(clippy::cast_precision_loss, reason = "a part of 2^20")]
            let part = (mixed(self.number, 10 + at) & 0xf_ffff) as f64 / f64::from(1 << 20);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 4096")]
            let place = VOCABULARY.powf(part) as u64 - 1;
            // The places in another order, so that common words do not share their beginnings.
            syllables(place * 1_237 % 4096, 3)
        };
        (0..WORDS).map(word).collect()
    }

    pub fn description(self) -> String {
        let (topic, action) = (self.topic(), self.action());
        format!("A {action} for {topic} files. Use it when the task is about {}.", [topic, action].join(" and "))
            + &format!(" It knows {}.", self.own_words().join(" "))
    }

    /// In their order, as the server stores them.
    pub fn tags(self) -> Vec<&'static str> {
        let common = self.number.is_multiple_of(3).then_some(COMMON_TAG);
        let tags: BTreeSet<&str> = [self.topic(), self.action()].into_iter().chain(common).collect();
        tags.into_iter().collect()
    }

    pub fn org(self) -> u64 {
        self.number / OF_ORG
    }

    /// How many organizations publish so many skills.
    pub fn orgs(count: u64) -> u64 {
        count.div_ceil(OF_ORG)
    }

    pub fn versions(self) -> Vec<String> {
        (0..=self.number % 3).map(|minor| format!("1.{minor}.0")).collect()
    }

    /// A few skills have most of the installs: that of rank n has one nth of the first.
    pub fn installs(self) -> u64 {
        // A prime that no number of skills here is a multiple of. The first skill is published by a request.
        const STRIDE: u64 = 7_368_787;
        let rank = 1 + self.number * STRIDE % self.count;
        if self.number == 0 { 0 } else { (self.count * 2 / 5 / rank).min(USERS) }
    }

    pub fn stars(self) -> u64 {
        self.installs() / 2
    }

    /// The stars of each rating, by users who installed the skill.
    pub fn ratings(self) -> impl Iterator<Item = usize> {
        let usual = 3 + pick(self.number, 3, 3);
        (0..self.installs() / 4).map(move |at| {
            let stars = if at % 7 == 6 { 1 + at / 7 % 5 } else { usual };
            usize::try_from(stars).unwrap_or(1)
        })
    }

    pub fn popularity(self) -> u64 {
        self.installs() * 3 + self.stars()
    }

    pub fn weight(self) -> i64 {
        i64::from((self.popularity() + 1).ilog2())
    }

    /// The user who did something to it as the nth one.
    pub fn user(self, place: u64) -> u64 {
        1 + (mixed(self.number, 4) % USERS + place) % USERS
    }

    pub fn skill_md(self, version: &str) -> String {
        format!(
            "---\nname: {}\ndescription: {}\nlicense: MIT\nmetadata:\n  version: \"{version}\"\n  tags: {}\n---\n{}",
            self.name(),
            self.description(),
            self.tags().join(", "),
            self.body()
        )
    }

    /// The text below the front matter. Only the name differs between skills.
    fn body(self) -> String {
        let step = "Read the file first, then say in one sentence what it holds. Ask before you change it.\n\n";
        let list =
            "- Keep a copy of the original.\n- Name the result as the user wants it.\n- Report what was left out.\n";
        format!("\n# {}\n\n{}\n## Steps\n\n{list}\n## Afterwards\n\n{}", self.name(), step.repeat(4), step.repeat(3))
    }

    pub fn frontmatter(self, version: &str) -> Value {
        json!({
            "name": self.name(),
            "description": self.description(),
            "license": "MIT",
            "metadata": { "version": version, "tags": self.tags().join(", ") },
            "_tags": self.tags(),
        })
    }

    /// The name without what makes two names look alike, as the server computes it.
    pub fn skeleton(self) -> String {
        let mut text = self.name().replace('-', "");
        for (from, to) in [("rn", "m"), ("vv", "w"), ("cl", "d"), ("0", "o"), ("1", "l"), ("i", "l"), ("5", "s")] {
            text = text.replace(from, to);
        }
        text
    }

    /// What the search finds it by: the words of its name with their beginnings, of its namespace, tags and description.
    pub fn words(self, namespace: &str) -> BTreeSet<String> {
        let (name, description) = (self.name(), self.description());
        let split = |text: &str| -> Vec<String> {
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
            words.map(str::to_ascii_lowercase).collect()
        };
        let mut words = BTreeSet::new();
        for word in name.split('-') {
            words.extend((SHORTEST_BEGINNING..=word.len()).map(|length| word[..length].to_owned()));
            words.insert(word.to_owned());
        }
        words.extend(split(namespace));
        words.extend(self.tags().into_iter().flat_map(|tag| [tag.to_owned(), format!("#{tag}")]));
        words.extend(split(&description));
        words
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_skill_is_another_one_and_few_have_most_installs() {
        let all: Vec<Shape> = (0..1000).map(|number| Shape { number, count: 1000 }).collect();
        let names: HashSet<String> = all.iter().map(|skill| skill.name()).collect();
        assert_eq!(names.len(), 1000);
        assert_eq!(all.iter().filter(|skill| skill.installs() >= 100).count(), 3);
        assert!(all.iter().all(|skill| skill.words("org-1").len() < 150 && skill.ratings().all(|stars| stars <= 5)));
        let common = all.iter().filter(|skill| skill.own_words().contains(&syllables(0, 3))).count();
        assert!((300..900).contains(&common), "{common} skills have the most common word");
    }
}
