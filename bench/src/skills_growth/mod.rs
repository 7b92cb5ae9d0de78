//! The marketplace among many skills, beside a thousand: lists in each order and of a tag, searches, a skill, the page.
//!
//! The goals are of server time. What is measured is the median of one client that asks one request at a time on the same
//! machine, hence the server's time and the way there and back, and the processor time of the server's process by request.
mod seed;
mod shape;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::shape::{ACTIONS, COMMON_TAG, Shape, TOPICS};
use crate::{
    client::{Who, ask},
    figure::{Figure, Goal, Unit},
    ground::Ground,
    growth::{Cost, thousands},
    process::{Core, Server},
    rounds::Rounds,
    servers::JanuaBinary,
    sizes::{self, Asked, SERVER, get},
};

const FEW: u64 = 1_000;
/// How many different requests a question has, where it has many.
const VARIETY: u64 = 500;
/// Microseconds.
const LIST: Goal = Goal::Below(1_000.0);
const SEARCH: Goal = Goal::Below(3_000.0);

#[derive(clap::Args)]
pub struct Options {
    /// How many skills there are
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(100..))]
    skills: u64,
    /// Where the data folders are, or are created and kept [default: new ones, deleted at the end]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Note {
    skills: u64,
}

/// A server with so many skills.
struct Market {
    server: Server,
    count: u64,
}

pub fn measure(rounds: &Rounds, janua: &JanuaBinary, options: &Options) -> Result<Vec<Figure>> {
    let settle = |count: u64| -> Result<Market> {
        let folder = sizes::folder(rounds, options.data.as_deref(), &format!("skills-{count}"))?;
        let Note { skills } = sizes::filled(&folder, |folder| fill(janua, folder, count))?;
        ensure!(skills == count, "{} has {skills} skills", folder.display());
        Ok(Market { server: janua.serve(&folder, SERVER)?, count })
    };
    let (few, many) = (settle(FEW)?, settle(options.skills)?);
    check(&few).context("among few skills")?;
    check(&many).context("among many skills")?;
    rustix::fs::sync();
    let mut figures = vec![];
    for question in QUESTIONS {
        let asked = |market| -> Result<Asked<'_>> { Ok(asked(market, &(question.requests)(market)?)) };
        let sides = sizes::ask_both(rounds, question.name, asked(&few)?, asked(&many)?)?;
        let say = |what: &str| -> &'static str {
            let (many, few) = (thousands(many.count), thousands(few.count));
            format!("{what} among {many} skills; among {few}").leak()
        };
        let figure = |what, pick: fn(&Cost) -> f64, goal| {
            let (scenario, unit, samples) = (question.name, Unit::Microseconds, sides.only(pick));
            Figure { scenario, what: say(what), unit, samples, goal }
        };
        figures.push(figure("p50", |cost| cost.p50_ms * 1e3, question.goal));
        figures.push(figure("p99", |cost| cost.p99_ms * 1e3, None));
        figures.push(figure("processor time", |cost| cost.cpu_us, question.goal));
    }
    Ok(figures)
}

fn fill(janua: &JanuaBinary, folder: &Path, count: u64) -> Result<Note> {
    let ground = Ground::lay(janua, folder, Core::Any, &[("JANUA_RATE_LIMITS", "off")])?;
    seed::publish(&ground, folder, count)?;
    // The server closes its file.
    drop(ground);
    seed::fill(folder, count)?;
    Ok(Note { skills: count })
}

fn asked<'a>(market: &'a Market, paths: &[String]) -> Asked<'a> {
    Asked { server: &market.server, requests: paths.iter().map(|path| get(path, "")).collect() }
}

struct Question {
    name: &'static str,
    goal: Option<Goal>,
    requests: fn(&Market) -> Result<Vec<String>>,
}

const QUESTIONS: &[Question] = &[
    Question { name: "by popularity", goal: Some(LIST), requests: |market| pages(market, "/skills?sort=popular") },
    Question { name: "by recency", goal: Some(LIST), requests: |market| pages(market, "/skills?sort=recent") },
    Question { name: "by rating", goal: Some(LIST), requests: |market| pages(market, "/skills?sort=rating") },
    Question {
        name: "of a tag",
        goal: Some(LIST),
        requests: |_| Ok(TOPICS.iter().chain(&ACTIONS).map(|tag| format!("/skills?tag={tag}")).collect()),
    },
    Question {
        name: "common tag",
        goal: Some(LIST),
        requests: |_| {
            Ok(["popular", "recent", "rating"].map(|by| format!("/skills?tag={COMMON_TAG}&sort={by}")).into())
        },
    },
    Question { name: "one word", goal: Some(SEARCH), requests: |market| Ok(market.searches("", one_word)) },
    Question { name: "two words", goal: Some(SEARCH), requests: |market| Ok(market.searches("", two_words)) },
    Question {
        name: "word by rating",
        goal: Some(SEARCH),
        requests: |market| Ok(market.searches("&sort=rating", one_word)),
    },
    Question {
        name: "a skill",
        goal: None,
        requests: |market| Ok(market.some().map(|skill| format!("/skills/{}", seed::slug(skill))).collect()),
    },
    Question { name: "page", goal: None, requests: |_| Ok(vec!["/marketplace".into()]) },
];

impl Market {
    fn some(&self) -> impl Iterator<Item = Shape> + use<> {
        Shape::scattered(VARIETY, self.count)
    }

    fn searches(&self, rest: &str, words: fn(Shape) -> String) -> Vec<String> {
        self.some().map(|skill| format!("/skills?query={}{rest}", words(skill))).collect()
    }

    fn list(&self, path: &str) -> Result<Vec<Value>> {
        let answer = ask(self.server.address, "GET", path, &Who::default(), &Value::Null)?;
        answer["skills"].as_array().cloned().with_context(|| format!("no skills in {answer}"))
    }
}

/// A word of a description, as common as words are; or the beginning of a name.
fn one_word(skill: Shape) -> String {
    let (mut words, name) = (skill.own_words(), skill.name());
    if skill.number.is_multiple_of(4) { name[..3].to_owned() } else { words.swap_remove(0) }
}

/// A word of the name and one of the description; or two of the description.
fn two_words(skill: Shape) -> String {
    let words = skill.own_words();
    let name = skill.name();
    let first = name.split('-').next().unwrap_or_default();
    if skill.number.is_multiple_of(2) { format!("{first}+{}", words[0]) } else { words[..2].join("+") }
}

/// The first and the second page.
fn pages(market: &Market, path: &str) -> Result<Vec<String>> {
    let first = ask(market.server.address, "GET", path, &Who::default(), &Value::Null)?;
    let cursor = first["nextCursor"].as_str().context("there is no second page")?;
    Ok(vec![path.to_owned(), format!("{path}&cursor={cursor}")])
}

/// The answers are those of the rows, in the right order.
fn check(market: &Market) -> Result<()> {
    let count = market.count;
    let all = || (1..count).map(|number| Shape { number, count });
    let (mut before, mut last) = (f64::MAX, String::from("9"));
    for skill in market.list("/skills?sort=rating")? {
        let path = format!("/ratings/aggregate?slug={}", skill["slug"].as_str().unwrap_or_default());
        let score = ask(market.server.address, "GET", &path, &Who::default(), &Value::Null)?["score"].as_f64();
        let score = score.context("no score")?;
        ensure!(score <= before, "the best rated skills are not first");
        before = score;
    }
    for skill in market.list("/skills?sort=recent")? {
        let updated = skill["updatedAt"].as_str().context("no moment")?.to_owned();
        ensure!(updated <= last, "the newest skills are not first");
        last = updated;
    }
    let popularity = |skill: &Value| Some(3 * skill["installs"].as_u64()? + skill["stars"].as_u64()?);
    let popular: Vec<u64> = market.list("/skills?sort=popular")?.iter().filter_map(popularity).collect();
    ensure!(popular.len() >= 20 && popular.is_sorted_by(|a, b| a >= b), "the most popular skills are not first");
    let most = all().map(Shape::popularity).max().unwrap_or(0);
    ensure!(popular[0] == most, "the most popular skill has {} and not {most}", popular[0]);
    for skill in Shape::scattered(20, count) {
        let slug = seed::slug(skill);
        let (name, word) = (skill.name(), skill.own_words().swap_remove(0));
        let own = name.rsplit('-').next().unwrap_or_default();
        let found = market.list(&format!("/skills?query={own}+{word}"))?;
        ensure!(found.len() == 1 && found[0]["slug"] == slug.as_str(), "{own} {word} does not find {slug}");
        let detail = ask(market.server.address, "GET", &format!("/skills/{slug}"), &Who::default(), &Value::Null)?;
        let is_right = detail["rating"]["count"].as_u64() == Some(skill.installs() / 4)
            && detail["versions"].as_array().map(Vec::len) == Some(skill.versions().len())
            && detail["readme"].as_str().is_some_and(|readme| readme.contains(&name));
        ensure!(is_right, "{slug} is another skill: {detail}");
    }
    let tag = TOPICS[0];
    let tagged = market.list(&format!("/skills?tag={tag}"))?;
    let wanted = all().filter(|skill| skill.tags().contains(&tag)).count();
    let is_right = |skill: &Value| skill["tags"].as_array().is_some_and(|tags| tags.contains(&tag.into()));
    ensure!(tagged.iter().all(is_right) && tagged.len() >= wanted.min(20), "the list of a tag is wrong");
    Ok(())
}
