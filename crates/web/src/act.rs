//! What the forms of the account and the console send: one request to the interface each, written out in the form. It is
//! made as the person who sent the form, and refused where the interface refuses it. Either way the answer is a redirect to a
//! page, which shows the [outcome] once.
use axum::{
    http::{HeaderName, Method, header},
    response::Response,
};
use kernel::{
    fault::{INVALID, Result},
    http::Routes,
    id::Id,
};
use serde_json::{Map, Value, json};
use tenancy::enter::CAPTCHA_PASS;

use crate::{
    form::{Fields, OwnPage},
    me::{ApiAnswer, Me, Sender},
    outcome::{self, FormOutcome, OWN_FIELDS},
    page::{error, go, local, noted, pages},
};

/// Of a request that must not be carried out twice, however often its form is sent.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub fn routes() -> Routes {
    pages("pages").body_limit(256 * 1024).post("/act", act, "submit a form of the account or the console")
}

async fn act(_: OwnPage, Sender(me): Sender, form: Fields) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let Some(back) = local(&me.janua, form.get("back")) else {
        return error(&me.janua, &INVALID.at("back", "wrong_form", "must be a page of ours"));
    };
    match call(&me, &form).await {
        Ok(ApiAnswer { body, headers }) => {
            let then = filled(form.get("then"), &body);
            let to = local(&me.janua, &then).unwrap_or(back);
            let outcome = FormOutcome::of_success(&form, body);
            let says_something = outcome.notice.is_some() || !outcome.answer.is_null();
            let to = if says_something { with_outcome(&me, &to, &outcome).await } else { to };
            let mut response = me.keeps(go(&to));
            // What the interface says about cookies comes last, and counts.
            for cookie in headers.get_all(header::SET_COOKIE) {
                response.headers_mut().append(header::SET_COOKIE, cookie.clone());
            }
            response
        }
        Err(fault) => {
            noted(&fault);
            let shown = outcome::open_shown(&me.janua, me.id(), form.get("shown"));
            let to = with_outcome(&me, &back, &FormOutcome::of_fault(&form, &fault, shown)).await;
            me.keeps(go(&to))
        }
    }
}

/// The page to go to, with the token of an outcome where it can show one.
pub async fn with_outcome(me: &Me, to: &str, outcome: &FormOutcome) -> String {
    let is_ours = ["/account", "/console", "/marketplace"].iter().any(|ours| to.starts_with(ours));
    let token = if is_ours { outcome::store(&me.janua, me.id(), outcome).await } else { None };
    match token {
        Some(token) => {
            let (page, part) =
                to.split_once('#').map_or((to, String::new()), |(page, part)| (page, format!("#{part}")));
            let sign = if page.contains('?') { '&' } else { '?' };
            format!("{page}{sign}{}={token}{part}", outcome::PARAMETER)
        }
        None => to.to_owned(),
    }
}

async fn call(me: &Me, form: &Fields) -> Result<ApiAnswer> {
    let wrong = || INVALID.at("call", "wrong_form", "must be a method and a path");
    let (method, to) = form.get("call").split_once(' ').ok_or_else(wrong)?;
    let method = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE].into_iter().find(|known| known == method);
    let to = local(&me.janua, to).ok_or_else(wrong)?;
    // A form that sends this very form would never end.
    if me.is_within() {
        return Err(wrong());
    }
    let body = Value::Object(body(form)?);
    let pass = if form.says("captcha") {
        let solution = json!({ "token": form.get("captcha") });
        let said = me.ask(Method::POST, "/auth/captcha/verify", Some(&solution)).await?;
        said.body["captchaPass"].as_str().map(str::to_owned)
    } else {
        None
    };
    let headers = [(CAPTCHA_PASS, pass.unwrap_or_default()), (IDEMPOTENCY_KEY, form.get("once").to_owned())];
    me.ask_with(method.ok_or_else(wrong)?, &to, Some(&body), &headers).await
}

/// A form knows text alone, so a field's name says what its value means: `name` is text, `name:some` text unless it is
/// empty, `name:number`, `name:flag`, `name:off` (the
/// flag is false unless its box, whose name is `name:flag`, is ticked), `name:list` (each value), `name:lines` (each line),
/// `name:described` (each line a name and, after a space, its description), `name:json`, `name:null` (text, or `null` when empty), and `name:body` (JSON whose fields are those of the body). A dot
/// leads into a record.
fn body(form: &Fields) -> Result<Map<String, Value>> {
    let mut body = Map::new();
    for (name, text) in form.pairs().filter(|(name, _)| !OWN_FIELDS.contains(name)) {
        let (name, kind) = name.split_once(':').unwrap_or((name, "text"));
        let (record, name) = match name.split_once('.') {
            Some((record, name)) => (Some(record), name),
            None => (None, name),
        };
        let place = match record {
            Some(record) => body.entry(record).or_insert_with(|| Value::Object(Map::new())),
            None => &mut Value::Null,
        };
        let fields = match place {
            Value::Object(inner) => inner,
            _ => &mut body,
        };
        let wrong = |why| INVALID.at(name, "wrong_form", why);
        let value = match kind {
            "some" if text.trim().is_empty() => continue,
            "null" if text.trim().is_empty() => Value::Null,
            "text" | "some" | "null" => Value::from(text),
            "number" => text.trim().parse::<i64>().map_err(|_| wrong("must be a whole number"))?.into(),
            "flag" => Value::from(text == "true"),
            "off" if fields.contains_key(name) => continue,
            "off" => Value::from(false),
            "list" => {
                let list = fields.entry(name).or_insert_with(|| Value::Array(vec![]));
                if let Value::Array(list) = list
                    && !text.is_empty()
                {
                    list.push(Value::from(text));
                }
                continue;
            }
            "lines" => text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Value::from).collect(),
            "described" => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                let pairs = lines.map(|line| line.split_once(char::is_whitespace).unwrap_or((line, "")));
                pairs.map(|(name, says)| json!({ "name": name, "description": says.trim() })).collect()
            }
            "json" => serde_json::from_str(text).map_err(|_| wrong("must be JSON"))?,
            "body" => {
                let more: Map<String, Value> =
                    serde_json::from_str(text).map_err(|_| wrong("must be a JSON record"))?;
                body.extend(more);
                continue;
            }
            _ => return Err(wrong("is of no kind we know")),
        };
        fields.insert(name.to_owned(), value);
    }
    Ok(body)
}

/// Where to go on to: `{id}` is that of what was made or begun.
fn filled(then: &str, body: &Value) -> String {
    match body["id"].as_str().or(body["operationId"].as_str()).filter(|id| id.parse::<Id<Value>>().is_ok()) {
        Some(id) => then.replacen("{id}", id, 1),
        None => then.to_owned(),
    }
}
