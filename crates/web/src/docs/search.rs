//! Search in the documents: an index of words in memory, made when the first user searches.
use std::collections::BTreeMap;

use serde::Serialize;

use super::{list, render::render};

/// How many results a page shows, and how long an excerpt is, in characters.
const MOST_SHOWN: usize = 30;
const EXCERPT: usize = 220;

/// What a word counts, by where it stands.
const IN_NAME: u32 = 40;
const IN_HEADING: u32 = 12;
const MOST_IN_TEXT: u32 = 6;

/// The changelog repeats what the guides say, and comes after them.
const LAST: &str = "changelog";

pub struct Index {
    passages: Vec<Indexed>,
    /// Every word, with the passages it stands in and what it counts there.
    words: BTreeMap<String, Vec<(usize, u32)>>,
}

struct Indexed {
    entry: &'static list::Entry,
    anchor: String,
    heading: String,
    text: String,
}

#[derive(Serialize)]
pub struct Hit {
    pub to: String,
    pub name: &'static str,
    pub heading: String,
    /// The excerpt in pieces; some are words that were searched for.
    pub excerpt: Vec<Piece>,
}

#[derive(Serialize)]
pub struct Piece {
    pub text: String,
    pub is_found: bool,
}

impl Index {
    /// Reads all documents.
    pub fn build() -> Self {
        let (mut passages, mut words) = (vec![], BTreeMap::<String, Vec<(usize, u32)>>::new());
        for entry in list::all() {
            for (at, passage) in render(entry, "").passages.into_iter().enumerate() {
                let number = passages.len();
                let mut weights = BTreeMap::<String, u32>::new();
                for word in words_of(&passage.text) {
                    let weight = weights.entry(word).or_default();
                    *weight = (*weight + 1).min(MOST_IN_TEXT);
                }
                // The first passage of a document is the one that its name leads to.
                let name = if at == 0 { IN_NAME } else { 1 };
                let titles = [(passage.heading.as_str(), IN_HEADING), (entry.name, name), (entry.page, name)];
                for (title, weight) in titles {
                    for word in words_of(title) {
                        *weights.entry(word).or_default() += weight;
                    }
                }
                for (word, weight) in weights {
                    words.entry(word).or_default().push((number, weight));
                }
                let text = passage.text.split_whitespace().collect::<Vec<_>>().join(" ");
                passages.push(Indexed { entry, anchor: passage.anchor, heading: passage.heading, text });
            }
        }
        Self { passages, words }
    }

    /// The passages that have every word, or words that begin with it; the best first.
    pub fn find(&self, query: &str) -> Vec<Hit> {
        let wanted = words_typed(query);
        let mut found: Option<BTreeMap<usize, u32>> = None;
        for word in &wanted {
            let mut here = BTreeMap::<usize, u32>::new();
            let from = self.words.range(word.clone()..).take_while(|(known, _)| known.starts_with(word));
            for (known, places) in from {
                let exact = if known == word { 3 } else { 1 };
                for (passage, weight) in places {
                    let share = if self.passages[*passage].entry.page == LAST { 1 } else { 4 };
                    let counted = here.entry(*passage).or_default();
                    *counted = (*counted).max(weight * exact * share);
                }
            }
            found = Some(match found {
                None => here,
                Some(before) => before
                    .into_iter()
                    .filter_map(|(passage, weight)| here.get(&passage).map(|more| (passage, weight + more)))
                    .collect(),
            });
        }
        let mut ranked: Vec<(usize, u32)> = found.unwrap_or_default().into_iter().collect();
        ranked.sort_by_key(|(passage, weight)| (std::cmp::Reverse(*weight), *passage));
        ranked.iter().take(MOST_SHOWN).map(|(passage, _)| self.hit(*passage, &wanted)).collect()
    }

    fn hit(&self, passage: usize, wanted: &[String]) -> Hit {
        let Indexed { entry, anchor, heading, text } = &self.passages[passage];
        let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
        Hit {
            to: format!("/docs/{}{anchor}", entry.page),
            name: entry.name,
            heading: heading.clone(),
            excerpt: excerpt(text, wanted),
        }
    }
}

fn is_of_a_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words_typed(text: &str) -> Vec<String> {
    let words = text.split(|c| !is_of_a_word(c)).filter(|word| !word.trim_matches('_').is_empty());
    words.map(str::to_lowercase).collect()
}

/// The words of a text; one with underscores counts whole and in its parts.
fn words_of(text: &str) -> Vec<String> {
    let mut words = words_typed(text);
    let parts: Vec<String> = words
        .iter()
        .filter(|word| word.contains('_'))
        .flat_map(|word| word.split('_').filter(|part| !part.is_empty()).map(str::to_owned))
        .collect();
    words.extend(parts);
    words
}

/// The text around the first word that was searched for, cut into pieces where such words are.
fn excerpt(text: &str, wanted: &[String]) -> Vec<Piece> {
    let tokens = tokens(text);
    let is_found = |token: &str| {
        let lower = token.to_lowercase();
        wanted.iter().any(|word| lower.starts_with(word) || lower.split('_').any(|part| part.starts_with(word)))
    };
    let first = tokens.iter().position(|token| is_found(token)).unwrap_or(0);
    let start = first.saturating_sub(16);
    let (mut pieces, mut length) = (Vec::<Piece>::new(), 0);
    if start > 0 {
        pieces.push(Piece { text: "… ".into(), is_found: false });
    }
    for (at, token) in tokens.iter().enumerate().skip(start) {
        let is_found = is_found(token);
        let token = if at == start { token.trim_start() } else { token };
        match pieces.last_mut().filter(|piece| !is_found && !piece.is_found) {
            Some(piece) => piece.text.push_str(token),
            None => pieces.push(Piece { text: token.to_owned(), is_found }),
        }
        length += token.chars().count();
        if length > EXCERPT {
            pieces.push(Piece { text: " …".into(), is_found: false });
            break;
        }
    }
    pieces
}

/// Words and what is between them, in turn.
fn tokens(text: &str) -> Vec<&str> {
    let (mut found, mut start, mut was) = (vec![], 0, None);
    for (at, c) in text.char_indices() {
        let is = is_of_a_word(c);
        if was.is_some_and(|was| was != is) {
            found.push(&text[start..at]);
            start = at;
        }
        was = Some(is);
    }
    if start < text.len() {
        found.push(&text[start..]);
    }
    found
}
