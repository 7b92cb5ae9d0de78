//! The language of filters (RFC 7644, 3.4.2.2): text in, a tree out, within bounds of length, depth and size.
//!
//! `or` binds weaker than `and`, `not` needs parentheses, `emails[...]` speaks of one value at a time. Words are known
//! in any case. What is not in the grammar is `invalidFilter`; nothing here panics, whatever the text.
use kernel::fault::{Code, Result};
use serde_json::Value;

pub const INVALID_FILTER: Code = Code::new(400, "invalid_filter", "The filter is invalid.");

/// In bytes.
const LONGEST: usize = 4096;
const DEEPEST: usize = 12;
const MOST_TERMS: usize = 60;

#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    And(Vec<Filter>),
    Or(Vec<Filter>),
    Not(Box<Filter>),
    Present(String),
    Compare(String, Op, Value),
    /// Something holds of one value of many.
    One(String, Box<Filter>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Eq,
    Ne,
    Co,
    Sw,
    Ew,
    Gt,
    Ge,
    Lt,
    Le,
}

impl Op {
    fn of(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "eq" => Self::Eq,
            "ne" => Self::Ne,
            "co" => Self::Co,
            "sw" => Self::Sw,
            "ew" => Self::Ew,
            "gt" => Self::Gt,
            "ge" => Self::Ge,
            "lt" => Self::Lt,
            "le" => Self::Le,
            _ => return None,
        })
    }
}

/// Where a patch points: an attribute, perhaps one value of many, perhaps a part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub name: String,
    pub which: Option<Filter>,
    pub part: Option<String>,
}

impl Filter {
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser::of(text)?;
        let filter = parser.any_of(0)?;
        parser.end()?;
        Ok(filter)
    }
}

impl Target {
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser::of(text)?;
        let name = parser.name()?;
        let which = if parser.takes(b'[') {
            let filter = parser.any_of(1)?;
            parser.needs(b']')?;
            Some(filter)
        } else {
            None
        };
        let part = if which.is_some() && parser.takes(b'.') { Some(parser.name()?) } else { None };
        parser.end()?;
        Ok(Self { name, which, part })
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    terms: usize,
}

fn wrong<T>(what: impl Into<String>) -> Result<T> {
    Err(INVALID_FILTER.because(what))
}

impl<'a> Parser<'a> {
    fn of(text: &'a str) -> Result<Self> {
        if text.len() > LONGEST {
            return wrong(format!("It is longer than {LONGEST} bytes."));
        }
        Ok(Self { text, at: 0, terms: 0 })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches(' ').len();
    }

    /// The next character, if it is this one.
    fn takes(&mut self, character: u8) -> bool {
        self.blanks();
        let is_there = self.rest().as_bytes().first() == Some(&character);
        self.at += usize::from(is_there);
        is_there
    }

    fn needs(&mut self, character: u8) -> Result<()> {
        let place = self.at;
        if self.takes(character) {
            Ok(())
        } else {
            wrong(format!("{} is missing at {place}.", char::from(character)))
        }
    }

    fn end(&mut self) -> Result<()> {
        self.blanks();
        if self.rest().is_empty() { Ok(()) } else { wrong(format!("Unexpected text at position {}.", self.at)) }
    }

    fn peek_word(&mut self) -> &'a str {
        self.blanks();
        let rest = self.rest();
        &rest[..rest.find(|c| !is_in_word(c)).unwrap_or(rest.len())]
    }

    fn takes_word(&mut self, wanted: &str) -> bool {
        let word = self.peek_word();
        let is_it = word.eq_ignore_ascii_case(wanted);
        self.at += if is_it { word.len() } else { 0 };
        is_it
    }

    /// The name of an attribute; whether there is such a one is for others to say.
    fn name(&mut self) -> Result<String> {
        let word = self.peek_word();
        if !word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '$') {
            return wrong(format!("An attribute is missing at position {}.", self.at));
        }
        self.at += word.len();
        Ok(word.to_owned())
    }

    fn any_of(&mut self, depth: usize) -> Result<Filter> {
        let mut terms = vec![self.all_of(depth)?];
        while self.takes_word("or") {
            terms.push(self.all_of(depth)?);
        }
        Ok(one_or(terms, Filter::Or))
    }

    fn all_of(&mut self, depth: usize) -> Result<Filter> {
        let mut terms = vec![self.term(depth)?];
        while self.takes_word("and") {
            terms.push(self.term(depth)?);
        }
        Ok(one_or(terms, Filter::And))
    }

    fn term(&mut self, depth: usize) -> Result<Filter> {
        self.terms += 1;
        if depth > DEEPEST || self.terms > MOST_TERMS {
            return wrong(format!("It is nested deeper than {DEEPEST} or has more than {MOST_TERMS} terms."));
        }
        if self.takes(b'(') {
            let inner = self.any_of(depth + 1)?;
            self.needs(b')')?;
            return Ok(inner);
        }
        let name = self.name()?;
        if name.eq_ignore_ascii_case("not") {
            self.needs(b'(')?;
            let inner = self.any_of(depth + 1)?;
            self.needs(b')')?;
            return Ok(Filter::Not(Box::new(inner)));
        }
        if self.takes(b'[') {
            let inner = self.any_of(depth + 1)?;
            self.needs(b']')?;
            return Ok(Filter::One(name, Box::new(inner)));
        }
        if self.takes_word("pr") {
            return Ok(Filter::Present(name));
        }
        let word = self.peek_word();
        let Some(op) = Op::of(word) else { return wrong(format!("An operator is missing at position {}.", self.at)) };
        self.at += word.len();
        Ok(Filter::Compare(name, op, self.literal()?))
    }

    /// A value as JSON writes it. A boolean may begin with a capital, as some providers have it.
    fn literal(&mut self) -> Result<Value> {
        self.blanks();
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<Value>();
        if self.rest().starts_with('"') {
            if let Some(Ok(value)) = values.next() {
                self.at += values.byte_offset();
                return Ok(value);
            }
            return wrong(format!("The string at position {} does not end.", self.at));
        }
        // A plus belongs to the exponent of a number alone.
        let rest = self.rest();
        let word = &rest[..rest.find(|c| !is_in_word(c) && c != '+').unwrap_or(rest.len())];
        let value = match word.to_ascii_lowercase().as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            number => match serde_json::from_str::<serde_json::Number>(number) {
                Ok(number) => Value::Number(number),
                Err(_) => return wrong(format!("A value is missing at position {}.", self.at)),
            },
        };
        self.at += word.len();
        Ok(value)
    }
}

fn is_in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.' | '$')
}

fn one_or(mut terms: Vec<Filter>, all: fn(Vec<Filter>) -> Filter) -> Filter {
    match terms.pop() {
        Some(only) if terms.is_empty() => only,
        Some(last) => {
            terms.push(last);
            all(terms)
        }
        None => all(terms),
    }
}
