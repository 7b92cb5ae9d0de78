//! Templates: the words of mails with places for variables, in one or more languages. They are drawn in a sandbox, with
//! a limit on how much they may do and how much memory they may take.
mod growth;

use std::io;

use axum::{extract::State, response::NoContent};
use db::{Read, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, INVALID, NOT_FOUND, Result},
    http::{Json, Path, Routes},
    transact,
};
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenancy::{
    apps::ApplicationId,
    enter::{Admin, InApp, Member},
};

use crate::{
    sending::{TemplateUse, is_locale},
    workers,
};

pub const UNKNOWN_TEMPLATE: Code = Code::new(400, "unknown_template", "The app has no template of this name.");
const TOO_MANY_TEMPLATES: Code = Code::new(409, "too_many_templates", "An app has at most 200 templates.");

/// Enough for a long list, too little for a loop without end.
const FUEL: u64 = 200_000;
/// Steps times the bytes that each may copy: seconds of a processor at most.
const WORK: u64 = 4 * 1024 * 1024 * 1024;
const LONGEST: usize = 512 * 1024;
const MOST: i64 = 200;

pub fn routes() -> Routes {
    Routes::new("email")
        .get("/apps/{appId}/email/templates", list_templates, "list templates")
        .get("/apps/{appId}/email/templates/{name}", get_template, "a template in all its languages")
        .post("/apps/{appId}/email/templates", save_template, "create a template, or replace one language of it")
        .fails(&[TOO_MANY_TEMPLATES])
        .delete("/apps/{appId}/email/templates/{name}", delete_template, "delete a template")
        .post("/apps/{appId}/email/templates/{name}/preview", preview_template, "a template with variables filled in")
        .fails(&[UNKNOWN_TEMPLATE])
}

#[derive(Clone)]
struct Template {
    name: String,
    locale: String,
    subject: String,
    html: Option<String>,
    body_text: Option<String>,
    sample: Value,
    updated_at: Timestamp,
}
row!(Template { name, locale, subject, html, body_text, sample, updated_at });

impl Template {
    async fn all(mut from: impl Read, app: ApplicationId) -> db::Result<Vec<Self>> {
        let sql = "SELECT name, locale, subject, html, body_text, sample, updated_at FROM email_template
                   WHERE app_id = $1 ORDER BY name, locale LIMIT 2000";
        from.all(sql, params![app]).await
    }

    async fn of_name(mut from: impl Read, app: ApplicationId, name: &str) -> db::Result<Vec<Self>> {
        let sql = "SELECT name, locale, subject, html, body_text, sample, updated_at FROM email_template
                   WHERE app_id = $1 AND name = $2 ORDER BY locale LIMIT 100";
        from.all(sql, params![app, name]).await
    }

    async fn save(&self, tx: &mut Tx, app: ApplicationId) -> db::Result<()> {
        tx.exec(
            "INSERT INTO email_template (app_id, name, locale, subject, html, body_text, sample, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (app_id, name, locale) DO UPDATE
                 SET subject = $4, html = $5, body_text = $6, sample = $7, updated_at = $8",
            params![
                app,
                &self.name,
                &self.locale,
                &self.subject,
                self.html.clone(),
                self.body_text.clone(),
                &self.sample,
                self.updated_at
            ],
        )
        .await?;
        Ok(())
    }
}

/// The language that fits best: `pt-BR`, then `pt`, then the one without a name, then any.
fn fitting<'a>(templates: &'a [Template], locale: Option<&str>) -> Option<&'a Template> {
    let exact = |wanted: &str| templates.iter().find(|one| one.locale.eq_ignore_ascii_case(wanted));
    let wanted = locale.unwrap_or_default();
    let language = wanted.split('-').next().unwrap_or_default();
    exact(wanted).or_else(|| exact(language)).or_else(|| exact("")).or_else(|| templates.first())
}

/// A template with its variables filled in.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Drawn {
    pub subject: String,
    pub html: Option<String>,
    pub text: Option<String>,
}

pub async fn draw(
    janua: &Janua,
    app: ApplicationId,
    used: &TemplateUse,
    locale: Option<&str>,
    prefix: &str,
) -> Result<Drawn> {
    let templates = Template::of_name(&janua.db, app, &used.name).await?;
    let template = fitting(&templates, locale).ok_or(UNKNOWN_TEMPLATE)?;
    fill(janua, template, &used.variables, format!("{prefix}template.variables")).await
}

/// Takes a processor for a while, so it happens beside the threads that answer.
async fn fill(janua: &Janua, template: &Template, variables: &Map<String, Value>, field: String) -> Result<Drawn> {
    let (template, variables) = (template.clone(), variables.clone());
    workers::run(janua, move || fill_now(&template, &variables, &field)).await?
}

fn fill_now(template: &Template, variables: &Map<String, Value>, field: &str) -> Result<Drawn> {
    let sizes = growth::Variables::of(variables);
    let draw = |source: &str, escape: AutoEscape| {
        render(source, variables, &sizes, escape).map_err(|why| INVALID.at(field.to_owned(), "template_failed", why))
    };
    Ok(Drawn {
        subject: draw(&template.subject, AutoEscape::None)?,
        html: template.html.as_deref().map(|html| draw(html, AutoEscape::Html)).transpose()?,
        text: template.body_text.as_deref().map(|text| draw(text, AutoEscape::None)).transpose()?,
    })
}

/// Draws one text. A variable that is missing is a mistake, and not an empty place in a mail that cannot be taken back.
fn render(
    source: &str,
    variables: &Map<String, Value>,
    sizes: &growth::Variables,
    escape: AutoEscape,
) -> Result<String, String> {
    let largest = growth::check(source, sizes)?;
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL.min(WORK / largest.max(1))));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(move |_| escape.clone());
    let template = environment.template_from_str(source).map_err(|error| in_words(&error))?;
    let mut page = Page::default();
    let drawn = template.render_captured_to(minijinja::value::Serde(variables), &mut page).map(drop);
    if page.is_full {
        return Err("must have at most 512 KiB when it is drawn".into());
    }
    drawn.map_err(|error| in_words(&error))?;
    String::from_utf8(page.bytes).map_err(|error| error.to_string())
}

/// What a template is drawn on. It takes no more than a mail may have.
#[derive(Default)]
struct Page {
    bytes: Vec<u8>,
    is_full: bool,
}

impl io::Write for Page {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + piece.len() > LONGEST {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn in_words(error: &minijinja::Error) -> String {
    let words = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let words: String = words.chars().filter(|c| !c.is_control()).take(200).collect();
    match error.line() {
        Some(line) => format!("cannot be drawn: line {line}: {words}"),
        None => format!("cannot be drawn: {words}"),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TemplatePath {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewTemplate {
    /// Letters, digits, and `.`, `_`, `-`.
    #[schemars(length(min = 1, max = 64))]
    name: String,
    /// Such as `de` or `pt-BR`; left out: the one that is used where no other fits.
    locale: Option<String>,
    /// With places such as `{{ name }}`.
    #[schemars(length(min = 1, max = 998))]
    subject: String,
    /// HTML, in which variables are escaped.
    html: Option<String>,
    /// Made from `html` when it is left out.
    text: Option<String>,
    /// Variables to look at the template with.
    #[serde(default)]
    sample: Map<String, Value>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TemplateView {
    name: String,
    /// Empty for the one that is used where no other fits.
    locale: String,
    subject: String,
    html: Option<String>,
    text: Option<String>,
    #[schemars(with = "Map<String, Value>")]
    sample: Value,
    updated_at: Timestamp,
}

impl TemplateView {
    fn of(template: Template) -> Self {
        let Template { name, locale, subject, html, body_text, sample, updated_at } = template;
        Self { name, locale, subject, html, text: body_text, sample, updated_at }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TemplateSummary {
    name: String,
    subject: String,
    locales: Vec<String>,
    updated_at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
struct TemplateList {
    templates: Vec<TemplateSummary>,
}

#[derive(Serialize, JsonSchema)]
struct TemplateLocales {
    name: String,
    locales: Vec<TemplateView>,
}

async fn list_templates(State(janua): State<Janua>, caller: InApp<Member>) -> Result<Json<TemplateList>> {
    let mut templates: Vec<TemplateSummary> = vec![];
    for one in Template::all(&janua.db, caller.application.id).await? {
        match templates.last_mut().filter(|last| last.name == one.name) {
            Some(last) => {
                last.updated_at = last.updated_at.max(one.updated_at);
                last.locales.push(one.locale);
            }
            None => templates.push(TemplateSummary {
                name: one.name,
                subject: one.subject,
                locales: vec![one.locale],
                updated_at: one.updated_at,
            }),
        }
    }
    Ok(Json(TemplateList { templates }))
}

async fn get_template(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Path(path): Path<TemplatePath>,
) -> Result<Json<TemplateLocales>> {
    let locales = Template::of_name(&janua.db, caller.application.id, &path.name).await?;
    if locales.is_empty() {
        return Err(NOT_FOUND.into());
    }
    Ok(Json(TemplateLocales { name: path.name, locales: locales.into_iter().map(TemplateView::of).collect() }))
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

async fn save_template(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(new): Json<NewTemplate>,
) -> Result<Json<TemplateView>> {
    let locale = new.locale.unwrap_or_default();
    let template = Template {
        name: new.name,
        locale,
        subject: new.subject,
        html: new.html.filter(|html| !html.is_empty()),
        body_text: new.text.filter(|text| !text.is_empty()),
        sample: Value::Object(new.sample),
        updated_at: janua.clock.now(),
    };
    check(&template)?;
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let app = caller.application.id;
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM email_template WHERE app_id = $1";
        let (count,): (i64,) = tx.one(sql, params![app]).await?;
        let is_new = Template::of_name(&mut *tx, app, &template.name).await?.is_empty();
        if is_new && count >= MOST {
            return Err(TOO_MANY_TEMPLATES.into());
        }
        Ok(template.save(tx, app).await?)
    })?;
    Ok(Json(TemplateView::of(template)))
}

/// Names every wrong field; texts must be templates, though nobody knows their variables yet.
fn check(template: &Template) -> Result<()> {
    let mut wrong = crate::sending::Findings::below(String::new());
    if !is_name(&template.name) {
        wrong.say("name", "wrong_form", "must be 1 to 64 letters, digits, or . _ -");
    }
    if !template.locale.is_empty() && !is_locale(&template.locale) {
        wrong.say("locale", "wrong_form", "must be a language such as de or pt-BR");
    }
    if template.html.is_none() && template.body_text.is_none() {
        wrong.say("html", "required", "must be given, or text");
    }
    let texts = [
        ("subject", Some(&template.subject)),
        ("html", template.html.as_ref()),
        ("text", template.body_text.as_ref()),
    ];
    for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text?))) {
        if text.len() > LONGEST {
            wrong.say(field, "too_long", "must have at most 512 KiB");
        } else if let Err(why) = growth::check(text, &growth::Variables::unknown()) {
            wrong.say(field, "template_failed", why);
        } else if let Err(error) = Environment::new().template_from_str(text) {
            wrong.say(field, "template_failed", in_words(&error));
        }
    }
    wrong.end()
}

async fn delete_template(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(path): Path<TemplatePath>,
) -> Result<NoContent> {
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let sql = "DELETE FROM email_template WHERE app_id = $1 AND name = $2";
        match tx.exec(sql, params![caller.application.id, &path.name]).await? {
            0 => Err(NOT_FOUND.into()),
            _ => Ok(()),
        }
    })?;
    Ok(NoContent)
}

#[derive(Deserialize, JsonSchema)]
struct Preview {
    locale: Option<String>,
    /// Left out: the sample of the template.
    variables: Option<Map<String, Value>>,
}

async fn preview_template(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Path(path): Path<TemplatePath>,
    Json(preview): Json<Preview>,
) -> Result<Json<Drawn>> {
    let templates = Template::of_name(&janua.db, caller.application.id, &path.name).await?;
    let template = fitting(&templates, preview.locale.as_deref()).ok_or(NOT_FOUND)?;
    let sample = || template.sample.as_object().cloned().unwrap_or_default();
    let variables = preview.variables.unwrap_or_else(sample);
    fill(&janua, template, &variables, "variables".to_owned()).await.map(Json)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn draw(source: &str, variables: &Value) -> Result<String, String> {
        let variables = variables.as_object().cloned().unwrap();
        render(source, &variables, &growth::Variables::of(&variables), AutoEscape::Html)
    }

    #[test]
    fn variables_are_escaped_in_html_and_missing_ones_are_named() {
        let all = json!({ "name": "<b>Ada</b>" });
        assert_eq!(draw("Hi {{ name }}", &all).unwrap(), "Hi &lt;b&gt;Ada&lt;&#x2f;b&gt;");
        assert!(draw("Hi {{ nmae }}", &all).unwrap_err().contains("cannot be drawn"));
    }

    #[test]
    fn a_receipt_is_drawn() {
        let receipt = "{% set who = first ~ ' ' ~ (last | upper) %}{{ who }}{% for line in lines %}
            {{- loop.index }} {{ line.name | title }} {{ line.price * line.count }} {{ line.note | default('-') }};
            {%- else %}nothing{% endfor %} {{ '%.2f' | format(total) }}{% if lines | length > 1 and total + 1 >= 3 %} {{ tags | join(', ') }}{% endif %}";
        let given = json!({
            "first": "Ada", "last": "Lovelace", "total": 7, "tags": ["a", "b"],
            "lines": [{ "name": "tea", "price": 3, "count": 2, "note": "hot" }, { "name": "cake", "price": 4, "count": 1 }],
        });
        let drawn = draw(receipt, &given).unwrap();
        assert_eq!(drawn, "Ada LOVELACE1 Tea 6 hot;2 Cake 4 -; 7.00 a, b");
        assert!(growth::check(receipt, &growth::Variables::unknown()).is_ok(), "it can be saved");
    }

    #[test]
    fn a_loop_without_end_ends() {
        let none = json!({});
        let long = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a * b }}{% endfor %}{% endfor %}";
        assert!(draw(long, &none).is_err());
        let includes = "{% include 'x' %}";
        assert!(draw(includes, &none).is_err());
    }

    /// Each took gigabytes, minutes or the stack.
    #[test]
    fn no_template_takes_more_memory_than_a_mail_is_worth() {
        let all = json!({ "big": "x".repeat(100_000), "list": vec!["y"; 1000], "n": 3 });
        let doubled: String = (0..40).map(|_| "{% set big = big ~ big %}").collect();
        let nested: String = (0..40).map(|_| "{% set list = [list, list, list, list] %}").collect();
        let (chain, branches) = ("big ~ ".repeat(50_000), "{% elif n %}".repeat(30_000));
        for source in [
            "{% for i in range(9000) %}{{ big }}{% endfor %}".to_owned(),
            "{% for i in range(9000) %}{% for j in range(9) %}<p>raw</p>{% endfor %}{% endfor %}".to_owned(),
            doubled + "{{ big | length }}",
            nested + "{{ list }}",
            "{% set ns = namespace(a=big) %}{% for i in range(40) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}"
                .to_owned(),
            "{% for i in range(40) %}{% set big = big ~ big %}{% endfor %}".to_owned(),
            "{% for i in range(40) %}{% set a = b | default(big) ~ 'x' %}{% set b = a ~ a %}{% endfor %}".to_owned(),
            "{% set x %}{% for i in range(9000) %}{{ big }}{% endfor %}{% endset %}".to_owned(),
            "{% macro m() %}{{ big }}{% endmacro %}{% for i in range(9000) %}{% set y = m() %}{% endfor %}"
                .to_owned(),
            "{% filter upper %}{% for i in range(9000) %}{{ big }}{% endfor %}{% endfilter %}".to_owned(),
            "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}".to_owned(),
            "{% if 'x' * 100000000 == 'y' %}{% endif %}".to_owned(),
            "{{ (list * 100000000) | length }}".to_owned(),
            "{{ (big * n) | length }}".to_owned(),
            "{{ big | replace('x', big) | length }}".to_owned(),
            "{{ list | join(big) | length }}".to_owned(),
            "{{ 'a' | indent(999999999) }}".to_owned(),
            "{{ '%999999999d' | format(1) }}".to_owned(),
            "{{ '%s' * n | format(big) }}".to_owned(),
            "{{ ('%s' ~ big) | format(big) }}".to_owned(),
            "{% for g in [{'list': big}] | groupby('list') %}{{ (g.list ~ g.list) * 99 }}{% endfor %}".to_owned(),
            "{{ list | batch(999999999, 'x') | list | length }}".to_owned(),
            "{{ list | map('replace', 'y', big) | join | length }}".to_owned(),
            "{% with a = {'n': big} %}{{ (a.n * 1000) | length }}{% endwith %}".to_owned(),
            format!("{{{{ ({chain} '') | length }}}}"),
            format!("{{% if n == 4 %}}{branches}{{% endif %}}"),
        ] {
            let shown: String = source.chars().take(80).collect();
            assert!(draw(&source, &all).is_err(), "{shown}");
        }
    }

    #[test]
    fn values_within_values_are_large_and_not_small() {
        let deep = (0..40).fold(json!("x".repeat(100_000)), |inner, _| json!({ "a": [inner] }));
        assert!(draw("{{ a ~ a }}", &deep).unwrap_err().contains("8 MiB"));
    }

    #[test]
    fn many_steps_over_a_large_text_end_early() {
        let all = json!({ "big": "x".repeat(300_000) });
        let long = "{% for a in range(60000) %}{% if big | upper == 'y' %}{% endif %}{% endfor %}";
        assert!(draw(long, &all).is_err());
    }
}
