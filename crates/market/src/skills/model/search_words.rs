//! The words that a skill is found by, and those of a search.
use std::collections::BTreeSet;

use unicode_normalization::UnicodeNormalization as _;

/// How many words a search may have.
pub const TERMS: usize = 4;
const LONGEST_WORD: usize = 32;
const MOST_WORDS: usize = 150;

/// The coarse weight of a popularity in the table of words.
pub fn weight(popularity: i64) -> i64 {
    i64::from(u64::try_from(popularity).unwrap_or_default().saturating_add(1).ilog2())
}

fn split(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| word.nfkc().flat_map(char::to_lowercase).take(LONGEST_WORD).collect())
}

/// What a search looks for.
pub fn terms(query: &str) -> Vec<String> {
    let mut terms: Vec<String> = split(query).collect();
    terms.dedup();
    terms.truncate(TERMS);
    terms
}

/// The words that a skill is found by. The words of its name are found by their beginnings, too.
pub fn words_of(namespace: &str, name: &str, description: &str, tags: &[String]) -> BTreeSet<String> {
    const SHORTEST: usize = 3;
    let beginnings = |word: &str| -> Vec<String> {
        let letters: Vec<char> = word.chars().collect();
        (SHORTEST..=letters.len()).map(|length| letters[..length].iter().collect()).collect()
    };
    let of_name = name.split('-').flat_map(|word| std::iter::once(word.to_owned()).chain(beginnings(word)));
    let of_tags = tags.iter().flat_map(|tag| split(tag).chain([format!("#{tag}")]));
    let all = of_name.chain(split(namespace)).chain(of_tags).chain(split(description));
    let mut words = BTreeSet::new();
    for word in all {
        if words.len() == MOST_WORDS {
            break;
        }
        words.insert(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_is_found_by_the_beginnings_of_its_name_and_the_words_of_its_description() {
        let words = words_of("com.example", "pdf-tools", "Reads PDF files; \u{fc}bersetzt.", &["office".into()]);
        for word in
            ["pdf", "too", "tool", "tools", "example", "reads", "files", "\u{fc}bersetzt", "office", "#office"]
        {
            assert!(words.contains(word), "{word}: {words:?}");
        }
        assert!(!words.contains("rea") && !words.contains("to"));
        assert_eq!(terms("Acme.PDF  tools!"), ["acme", "pdf", "tools"]);
        assert!(terms("!!").is_empty());
        assert_eq!((weight(0), weight(1), weight(6), weight(7)), (0, 1, 2, 3));
    }
}
