//! What a page sends: a form of ours, from a page of ours.
use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, HeaderName, request::Parts},
};
use kernel::{
    Janua,
    email::Email,
    fault::{CROSS_SITE, Fault, INVALID, Result},
    http::{FormPairs, GenContext, Operation, OperationInput, foreign_origin, may_answer},
};
use tenancy::sessions::sign_in::Typed;
use url::form_urlencoded::Serializer;

/// The fields of a form. What is missing is empty: a page says what is wrong in its own words.
pub struct Fields(Vec<(String, String)>);

impl Fields {
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn email(&self) -> Result<Email> {
        Email::parse(self.get("email")).ok_or_else(|| INVALID.at("email", "wrong_form", "Enter a valid email."))
    }

    /// A line of text that must be there.
    pub fn short(&self, name: &str, say: &str) -> Result<String> {
        let text = self.get(name).trim();
        let is_good = !text.is_empty() && text.chars().count() <= 200;
        if is_good { Ok(text.to_owned()) } else { Err(INVALID.at(name, "required", say)) }
    }

    pub fn secret(&self, name: &str) -> Typed {
        Typed(self.get(name).to_owned().into())
    }

    /// As they stand in an address.
    pub fn query(&self) -> String {
        Serializer::new(String::new()).extend_pairs(&self.0).finish()
    }

    pub fn says(&self, name: &str) -> bool {
        !self.get(name).is_empty()
    }
}

impl FromRequest<Janua> for Fields {
    type Rejection = Fault;

    async fn from_request(request: Request, janua: &Janua) -> Result<Self> {
        FormPairs::from_request(request, janua).await.map(|FormPairs(pairs)| Self(pairs))
    }
}

impl OperationInput for Fields {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        FormPairs::operation_input(ctx, operation);
    }
}

/// A form that came from a page of ours. Nobody is signed in by a page elsewhere, not even as somebody else.
pub struct OwnPage;

impl FromRequestParts<Janua> for OwnPage {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        Self::check(janua, &parts.headers)
    }
}

impl OwnPage {
    pub fn check(janua: &Janua, headers: &HeaderMap) -> Result<Self> {
        let site = headers.get(HeaderName::from_static("sec-fetch-site"));
        let is_elsewhere = site.is_some_and(|site| site == "cross-site" || site == "same-site");
        if is_elsewhere || foreign_origin(janua, headers).is_some() { Err(CROSS_SITE.into()) } else { Ok(Self) }
    }
}

impl OperationInput for OwnPage {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        may_answer(operation, &[CROSS_SITE]);
    }
}
