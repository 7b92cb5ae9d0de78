//! What the forms of the account and the console send: one request to the interface each, written out in the form. It is
//! made as the person who sent the form, and refused where the interface refuses it.
use axum::{
    http::{Method, StatusCode, header},
    response::Response,
};
use kernel::{
    fault::{Fault, INVALID, Result},
    http::Routes,
    id::Id,
};
use serde_json::{Map, Value, json};
use tenancy::enter::REAUTHENTICATION_REQUIRED;

use crate::{
    captcha,
    form::{Fields, OwnPage},
    me::{ApiAnswer, FormOutcome, Me, Sender},
    page::{by_field, error, go, local, noted, pages, status_of},
};

pub fn routes() -> Routes {
    pages("pages").body_limit(256 * 1024).post("/act", act, "what the forms of the account and the console send")
}

/// Fields that say what to do; the others are the body.
const OURS: [&str; 6] = ["call", "back", "form", "then", "show", "captcha"];

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
            let mut response = me.keeps(if form.says("show") {
                me.again(&back, told(&form, None, body)).await
            } else {
                let then = filled(form.get("then"), &body);
                go(&local(&me.janua, &then).unwrap_or(back))
            });
            // What the interface says about cookies comes last, and counts.
            for cookie in headers.get_all(header::SET_COOKIE) {
                response.headers_mut().append(header::SET_COOKIE, cookie.clone());
            }
            response
        }
        Err(fault) => {
            noted(&fault);
            me.keeps(me.again(&back, told(&form, Some(&fault), Value::Null)).await)
        }
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
        let said = me.ask(Method::POST, "/auth/captcha/verify", Some(&solution), None).await?;
        said.body["captchaPass"].as_str().map(str::to_owned)
    } else {
        None
    };
    me.ask(method.ok_or_else(wrong)?, &to, Some(&body), pass.as_deref()).await
}

/// A form knows text alone, so a field's name says what its value means: `name` is text, `name:some` text unless it is
/// empty, `name:number`, `name:flag` (the last one counts), `name:list` (each value), `name:lines` (each line),
/// `name:described` (each line a name and, after a space, its description), `name:json`, `name:null` (text, or `null` when empty), and `name:body` (JSON whose fields are those of the body). A dot
/// leads into a record.
fn body(form: &Fields) -> Result<Map<String, Value>> {
    let mut body = Map::new();
    for (name, text) in form.pairs().filter(|(name, _)| !OURS.contains(name)) {
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

/// Where to go on to: `{id}` is that of what was made.
fn filled(then: &str, body: &Value) -> String {
    match body["id"].as_str().filter(|id| id.parse::<Id<Value>>().is_ok()) {
        Some(id) => then.replacen("{id}", id, 1),
        None => then.to_owned(),
    }
}

/// What would do as a proof, as the interface says it.
fn proofs(fault: &Fault) -> Vec<String> {
    let methods = fault.extra("methods").and_then(Value::as_array).into_iter().flatten();
    methods.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn told(form: &Fields, fault: Option<&Fault>, answer: Value) -> FormOutcome {
    let is_secret = |name: &str| ["password", "code", "Password"].iter().any(|word| name.contains(word));
    let typed = form.pairs().filter(|(name, _)| !is_secret(name) && !OURS.contains(name));
    FormOutcome {
        form: form.get("form").to_owned(),
        wrong: fault.map(Fault::above_form),
        errors: fault.map(by_field).unwrap_or_default(),
        challenge: fault.and_then(captcha::challenge),
        proofs: fault.filter(|fault| fault.code() == REAUTHENTICATION_REQUIRED).map(proofs).unwrap_or_default(),
        typed: typed.map(|(name, text)| (name.to_owned(), Value::from(text))).collect(),
        answer,
        status: fault.map_or(StatusCode::OK, status_of),
    }
}
