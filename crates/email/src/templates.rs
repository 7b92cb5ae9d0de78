//! Templates: the words of mails with places for variables, in one or more languages. They are drawn in a sandbox, with
//! a limit on how much they may do.
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

use crate::sending::{TemplateUse, is_locale};

pub const UNKNOWN_TEMPLATE: Code = Code::new(400, "unknown_template", "The app has no template of this name.");
const TOO_MANY_TEMPLATES: Code = Code::new(409, "too_many_templates", "An app has at most 200 templates.");

/// Enough for a long list, too little for a loop without end.
const FUEL: u64 = 200_000;
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
    fill(template, &used.variables, &format!("{prefix}template.variables"))
}

fn fill(template: &Template, variables: &Map<String, Value>, field: &str) -> Result<Drawn> {
    let draw = |source: &str, escape: AutoEscape| {
        render(source, variables, escape).map_err(|why| INVALID.at(field.to_owned(), "template_failed", why))
    };
    Ok(Drawn {
        subject: draw(&template.subject, AutoEscape::None)?,
        html: template.html.as_deref().map(|html| draw(html, AutoEscape::Html)).transpose()?,
        text: template.body_text.as_deref().map(|text| draw(text, AutoEscape::None)).transpose()?,
    })
}

/// Draws one text. A variable that is missing is a mistake, and not an empty place in a mail that cannot be taken back.
fn render(source: &str, variables: &Map<String, Value>, escape: AutoEscape) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(move |_| escape.clone());
    let drawn =
        environment.render_str(source, minijinja::value::Serde(variables)).map_err(|error| in_words(&error))?;
    if drawn.len() > LONGEST { Err("must have at most 512 KiB when it is drawn".into()) } else { Ok(drawn) }
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
    fill(template, &variables, "variables").map(Json)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variables(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn variables_are_escaped_in_html_and_missing_ones_are_named() {
        let all = variables(&json!({ "name": "<b>Ada</b>" }));
        assert_eq!(render("Hi {{ name }}", &all, AutoEscape::Html).unwrap(), "Hi &lt;b&gt;Ada&lt;&#x2f;b&gt;");
        assert!(render("Hi {{ nmae }}", &all, AutoEscape::Html).unwrap_err().contains("cannot be drawn"));
    }

    #[test]
    fn a_loop_without_end_ends() {
        let none = Map::new();
        let long = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a * b }}{% endfor %}{% endfor %}";
        assert!(render(long, &none, AutoEscape::None).is_err());
        let includes = "{% include 'x' %}";
        assert!(render(includes, &none, AutoEscape::None).is_err());
    }
}
