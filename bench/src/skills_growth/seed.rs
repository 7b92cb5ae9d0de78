//! The rows of the skills, as the server would have written them. The first skill is published by a request; what the server
//! stored of it is compared with what is written here, and gives what only the server can compute: the drawn description, the
//! verdict of the scan, the signature. So signatures of the others do not match their texts, and their packages have no
//! bytes: both are not asked for. Neither are the lines of the audit log, which are left out.
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use kernel::clock::Timestamp;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::shape::{Shape, USERS};
use crate::{
    client,
    ground::Ground,
    rounds,
    seed::{Directory, User, uuid},
    sizes::{DAY, now, pick, write},
};

const YEAR: i64 = 365 * DAY;
/// Versions of a skill follow each other in so many days.
const BETWEEN: i64 = 7 * DAY;
/// Ten ratings of the mean count for each skill, and three stars are the mean before there is any.
const PRIOR: i64 = 10;
const FIRST_MEAN: i64 = 3000;

// The kinds of ids.
const ORG: u16 = 3;
const SKILL: u16 = 7;
const VERSION: u16 = 8;

/// Publishes the first skill by a request, for the organization of the owner.
pub fn publish(ground: &Ground, folder: &Path, count: u64) -> Result<()> {
    let skill = Shape { number: 0, count };
    let package = folder.join("package");
    fs::create_dir_all(package.join("references"))?;
    fs::write(package.join("SKILL.md"), skill.skill_md("1.0.0"))?;
    fs::write(package.join("references/forms.md"), FORMS)?;
    let names = ["SKILL.md", "references/forms.md"];
    let packed =
        Command::new("tar").args(["-czf", "-", "-C"]).arg(&package).args(names).stdin(Stdio::null()).output();
    let packed = packed.context("tar runs")?;
    ensure!(packed.status.success(), "tar failed");
    let head = format!(
        "POST /skills HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-type: application/gzip\r\ncontent-length: {}\r\n\r\n",
        ground.token,
        packed.stdout.len()
    );
    let answer = client::send(ground.address(), &[head.as_bytes(), &packed.stdout].concat())?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

const FORMS: &str = "# Forms\n";

/// Writes all other skills.
pub fn fill(folder: &Path, count: u64) -> Result<()> {
    write(folder, count, |connection| {
        let template = Template::read(connection, count)?;
        let writer = Writer { template, count, now: now()? };
        let bar = rounds::bar("seed", 5);
        for (name, step) in STEPS {
            bar.set_message(*name);
            let tx = connection.transaction()?;
            step(&writer, &tx)?;
            tx.commit()?;
            bar.inc(2);
        }
        bar.finish_and_clear();
        Ok(())
    })
}

type Step = fn(&Writer, &Connection) -> Result<()>;
const STEPS: &[(&str, Step)] = &[
    ("users and organizations", Writer::people),
    ("skills", Writer::skills),
    ("versions", Writer::versions),
    ("words", Writer::words),
    ("installs, stars and ratings", Writer::uses),
];

/// What the server stored of the first skill.
struct Template {
    hash: String,
    tier: String,
    name: String,
    html: String,
    verdict: String,
    engine: i64,
    findings: String,
    signature: String,
    key: String,
    object: String,
    pack: String,
}

impl Template {
    /// Reads it, and checks that the server writes what is written here.
    fn read(connection: &Connection, count: u64) -> Result<Self> {
        let skill = Shape { number: 0, count };
        let sql = "SELECT v.verdict, v.engine, v.findings, v.signature, v.key_id, v.object, v.pack, r.html,
                          (SELECT password_hash FROM account LIMIT 1), (SELECT tier FROM org LIMIT 1)
                   FROM skill_version v JOIN skill_readme r ON r.version_id = v.id";
        let template = connection.query_row(sql, [], |row| {
            Ok(Self {
                name: skill.name(),
                verdict: row.get(0)?,
                engine: row.get(1)?,
                findings: row.get(2)?,
                signature: row.get(3)?,
                key: row.get(4)?,
                object: row.get(5)?,
                pack: row.get(6)?,
                html: row.get(7)?,
                hash: row.get(8)?,
                tier: row.get(9)?,
            })
        })?;
        let text = |sql: &str| -> Result<String> { Ok(connection.query_row(sql, [], |row| row.get(0))?) };
        let texts = |sql: &str| -> Result<BTreeSet<String>> {
            Ok(connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        };
        let namespace = text("SELECT namespace FROM skill")?;
        ensure!(texts("SELECT word FROM skill_word")? == skill.words(&namespace), "the server has other words");
        let tags = skill.tags().into_iter().map(str::to_owned).collect();
        ensure!(texts("SELECT tag FROM skill_tag")? == tags, "the server has other tags");
        ensure!(text("SELECT skeleton FROM skill")? == skill.skeleton(), "the server has another skeleton");
        ensure!(text("SELECT description FROM skill")? == skill.description(), "the server has another description");
        let frontmatter: Value = serde_json::from_str(&text("SELECT frontmatter FROM skill_version")?)?;
        ensure!(frontmatter == skill.frontmatter("1.0.0"), "the server has another front matter: {frontmatter}");
        let files: Value = serde_json::from_str(&text("SELECT files FROM skill_version")?)?;
        ensure!(files == packed_files(skill, "1.0.0"), "the server has other files: {files}");
        let published = connection.query_row("SELECT published_at FROM skill_version", [], |row| row.get(0))?;
        let org = text("SELECT name FROM org")?;
        let slug = text("SELECT slug FROM skill")?;
        let digest = text("SELECT digest FROM skill_version")?;
        let manifest = manifest(skill, "1.0.0", (&slug, &namespace, &org), &digest, published);
        ensure!(text("SELECT manifest FROM skill_version")? == manifest, "the server signs another text");
        Ok(template)
    }
}

fn sha256(text: &str) -> String {
    HEXLOWER.encode(digest(&SHA256, text.as_bytes()).as_ref())
}

fn packed_files(skill: Shape, version: &str) -> Value {
    let text = skill.skill_md(version);
    json!([
        { "path": "SKILL.md", "digest": sha256(&text), "size": text.len(), "at": 0 },
        { "path": "references/forms.md", "digest": sha256(FORMS), "size": FORMS.len(), "at": text.len() },
    ])
}

/// The text that is signed, with its fields in order.
fn manifest(
    skill: Shape,
    version: &str,
    (slug, namespace, org): (&str, &str, &str),
    digest: &str,
    published: i64,
) -> String {
    let text = skill.skill_md(version);
    let file = |path: &str, text: &str| {
        format!(r#"{{"digest":"sha256:{}","path":"{path}","size":{}}}"#, sha256(text), text.len())
    };
    let files = [file("SKILL.md", &text), file("references/forms.md", FORMS)].join(",");
    let publisher = format!(r#"{{"domain":null,"namespace":"{namespace}","orgName":{}}}"#, json!(org));
    format!(
        r#"{{"digest":"sha256:{digest}","files":[{files}],"publishedAt":"{}","publisher":{publisher},"slug":"{slug}","version":"{version}"}}"#,
        Timestamp(published)
    )
}

struct Writer {
    template: Template,
    count: u64,
    now: i64,
}

pub fn namespace(skill: Shape) -> String {
    format!("org-{}", skill.org())
}

pub fn slug(skill: Shape) -> String {
    format!("{}.{}", namespace(skill), skill.name())
}

fn id(skill: Shape) -> String {
    uuid(SKILL, skill.number)
}

fn version_id(skill: Shape, place: usize) -> String {
    uuid(VERSION, skill.number * 4 + place as u64)
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Writer {
    /// All but the first.
    fn all(&self) -> impl Iterator<Item = Shape> + use<> {
        let count = self.count;
        (1..count).map(move |number| Shape { number, count })
    }

    /// When a skill was first published: over the year, and the last versions of all are out.
    fn created(&self, skill: Shape) -> i64 {
        let part = i128::from(skill.number) * i128::from(YEAR - 40 * DAY) / i128::from(self.count);
        self.now - YEAR + i64::try_from(part).unwrap_or(0)
    }

    /// When a version was published: the order of the latest ones is not that of the skills.
    fn published(&self, skill: Shape, place: usize) -> i64 {
        let place = i64::try_from(place).unwrap_or(0);
        self.created(skill) + place * (BETWEEN + int(pick(skill.number, 5, 10)) * DAY / 10)
    }

    /// The users who install, then an owner for each organization.
    fn people(&self, connection: &Connection) -> Result<()> {
        let mut account = connection.prepare(
            "INSERT INTO account (id, email, email_key, name, email_verified, password_hash, accepts_marketing,
                                  created_at, updated_at)
             VALUES (?1, ?2, ?2, ?3, 1, ?4, 0, ?5, ?5)",
        )?;
        let began = self.now - YEAR - DAY;
        let orgs = Shape::orgs(self.count);
        for user in (1..=USERS + orgs).map(User) {
            account.execute(params![user.id(), user.email(), user.name(), self.template.hash, began])?;
        }
        let mut org = connection.prepare(
            "INSERT INTO org (id, name, slug, tier, metadata, people, created_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, '{}', 1, ?5, ?5)",
        )?;
        let mut space = connection.prepare(
            "INSERT INTO skill_namespace (namespace, org_id, domain, created_at) VALUES (?1, ?2, NULL, ?3)",
        )?;
        let mut directory = Directory::prepare(connection)?;
        for number in 0..orgs {
            let (id, slug) = (uuid(ORG, number), format!("org-{number}"));
            org.execute(params![id, org_name(number), slug, self.template.tier, began])?;
            space.execute(params![slug, id, began])?;
            directory.add(&id, publisher(number), "owner", 1, began)?;
        }
        Ok(())
    }

    fn skills(&self, connection: &Connection) -> Result<()> {
        let mut row = connection.prepare(
            "INSERT INTO skill (id, slug, namespace, name, skeleton, org_id, is_verified, visibility, state, is_listed,
                                description, license, tags, latest_id, latest_version, stars, installs, downloads,
                                ratings_1, ratings_2, ratings_3, ratings_4, ratings_5, score, scored_on, popularity,
                                weight, created_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 'public', 'active', 1, ?7, 'MIT', ?8, ?9, ?10, ?11, ?12, ?13,
                     ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)",
        )?;
        let mut tag = connection.prepare("INSERT INTO skill_tag (tag, skill_id) VALUES (?1, ?2)")?;
        let counted = |skill: Shape| {
            let mut counts = [0_i64; 5];
            skill.ratings().for_each(|stars| counts[stars - 1] += 1);
            let sum: i64 = counts.iter().zip(1..).map(|(count, stars)| count * stars).sum();
            (counts, sum, counts.iter().sum::<i64>())
        };
        let (stars, ratings) = self.all().fold((0, 0), |(stars, ratings), skill| {
            let (_, sum, count) = counted(skill);
            (stars + sum, ratings + count)
        });
        // As the daily job computes it.
        let mean = (PRIOR * FIRST_MEAN + 1000 * stars) / (PRIOR + ratings);
        connection.execute(
            "INSERT INTO setting (name, value) VALUES ('skill_mean_rating', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1",
            params![mean.to_string()],
        )?;
        let today = self.now.div_euclid(DAY);
        connection.execute("UPDATE skill SET score = ?1, scored_on = ?2", params![mean, today])?;
        for skill in self.all() {
            let (counts, sum, count) = counted(skill);
            let score = (PRIOR * mean + 1000 * sum) / (PRIOR + count);
            let (versions, tags) = (skill.versions(), skill.tags());
            let latest = versions.len() - 1;
            row.execute(params![
                id(skill),
                slug(skill),
                namespace(skill),
                skill.name(),
                skill.skeleton(),
                uuid(ORG, skill.org()),
                skill.description(),
                json!(tags).to_string(),
                version_id(skill, latest),
                versions[latest],
                int(skill.stars()),
                int(skill.installs()),
                int(skill.installs() * 2),
                counts[0],
                counts[1],
                counts[2],
                counts[3],
                counts[4],
                score,
                today,
                int(skill.popularity()),
                skill.weight(),
                self.created(skill),
                self.published(skill, latest),
            ])?;
            for name in tags {
                tag.execute(params![name, id(skill)])?;
            }
        }
        Ok(())
    }

    fn versions(&self, connection: &Connection) -> Result<()> {
        let mut row = connection.prepare(
            "INSERT INTO skill_version (id, skill_id, version, digest, size, object, pack, files, frontmatter, state,
                                        verdict, engine, findings, manifest, signature, key_id, published_by, created_at,
                                        published_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'published', ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?17)",
        )?;
        let mut readme = connection.prepare("INSERT INTO skill_readme (version_id, html) VALUES (?1, ?2)")?;
        let mut object =
            connection.prepare("INSERT INTO skill_object (object, version_id, created_at) VALUES (?1, ?2, ?3)")?;
        let Template { object: first, pack, html, name, .. } = &self.template;
        for skill in self.all() {
            let html = html.replace(name, &skill.name());
            let (slug, namespace, org) = (slug(skill), namespace(skill), org_name(skill.org()));
            for (place, version) in skill.versions().iter().enumerate() {
                let id = version_id(skill, place);
                let (digest, at) = (sha256(&format!("{slug} {version}")), self.published(skill, place));
                let manifest = manifest(skill, version, (&slug, &namespace, &org), &digest, at);
                let objects = [own_key(first, &digest), own_key(pack, &digest)];
                row.execute(params![
                    id,
                    self::id(skill),
                    version,
                    digest,
                    700,
                    objects[0],
                    objects[1],
                    packed_files(skill, version).to_string(),
                    skill.frontmatter(version).to_string(),
                    self.template.verdict,
                    self.template.engine,
                    self.template.findings,
                    manifest,
                    self.template.signature,
                    self.template.key,
                    publisher(skill.org()).id(),
                    at,
                ])?;
                readme.execute(params![id, html])?;
                for key in &objects {
                    object.execute(params![key, id, at])?;
                }
            }
        }
        Ok(())
    }

    fn words(&self, connection: &Connection) -> Result<()> {
        let mut row = connection.prepare("INSERT INTO skill_word (word, weight, skill_id) VALUES (?1, ?2, ?3)")?;
        for skill in self.all() {
            let id = id(skill);
            for word in skill.words(&namespace(skill)) {
                row.execute(params![word, skill.weight(), id])?;
            }
        }
        Ok(())
    }

    fn uses(&self, connection: &Connection) -> Result<()> {
        let mut install = connection.prepare(
            "INSERT INTO skill_install (account_id, skill_id, version_id, first_installed_at, installed_at)
             VALUES (?1, ?2, ?3, ?4, ?4)",
        )?;
        let mut star =
            connection.prepare("INSERT INTO skill_star (skill_id, account_id, created_at) VALUES (?1, ?2, ?3)")?;
        let mut rating = connection.prepare(
            "INSERT INTO skill_rating (skill_id, account_id, stars, comment, created_at, updated_at)
             VALUES (?1, ?2, ?3, NULL, ?4, ?4)",
        )?;
        for skill in self.all() {
            let (latest, skill_id) = (skill.versions().len() - 1, id(skill));
            let (version, at) = (version_id(skill, latest), self.published(skill, latest) + DAY);
            for place in 0..skill.installs() {
                install.execute(params![User(skill.user(place)).id(), skill_id, version, at])?;
            }
            for place in 0..skill.stars() {
                star.execute(params![skill_id, User(skill.user(place)).id(), at])?;
            }
            for (place, stars) in (0..).zip(skill.ratings()) {
                let stars = i64::try_from(stars)?;
                rating.execute(params![skill_id, User(skill.user(place)).id(), stars, at + DAY])?;
            }
        }
        Ok(())
    }
}

fn org_name(number: u64) -> String {
    format!("Org {number}")
}

/// The owner of an organization, who publishes its skills.
fn publisher(org: u64) -> User {
    User(USERS + 1 + org)
}

/// A key of the same form as that of the first package.
fn own_key(like: &str, digest: &str) -> String {
    let (folder, file) = like.rsplit_once('/').unwrap_or(("skills", like));
    let (stem, kind) = file.rsplit_once('.').unwrap_or((file, "tgz"));
    let length = stem.len().min(digest.len());
    format!("{folder}/{}.{kind}", &digest[..length])
}
