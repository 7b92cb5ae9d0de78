//! Access of an identity provider: by a SCIM token of one organization, in the header only.
use axum::{
    extract::FromRequestParts,
    http::{header, request::Parts},
};
use db::Tx;
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Fault, Result, UNAUTHENTICATED},
    http::{Client, GenContext, Operation, OperationInput, bearer, may_answer, requires},
};

use crate::{
    events::{self, About, By, Event},
    ids::OrgId,
    orgs::scim_tokens,
};

/// The identity provider of an organization. It can reach that organization only.
pub struct ScimToken {
    pub org: OrgId,
    /// For events: no actor, and the IP address of the caller.
    pub by: By,
}

impl ScimToken {
    /// Records something that happened to the organization.
    pub async fn record(&self, tx: &mut Tx, janua: &Janua, event: &dyn Event) -> db::Result<()> {
        self.record_about(tx, janua, About::in_org(self.org), event).await
    }

    /// Records something that the provider did to `about`, which is of its organization.
    pub async fn record_about(&self, tx: &mut Tx, janua: &Janua, about: About, event: &dyn Event) -> db::Result<()> {
        events::record(tx, janua, &self.by, about, event).await
    }
}

impl FromRequestParts<Janua> for ScimToken {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let client = Client::from_request_parts(parts, janua).await?;
        let value = Secret::from(bearer(&parts.headers).ok_or(UNAUTHENTICATED)?.to_owned());
        let found = scim_tokens::StoredScimToken::recognise(&janua.db, &value, janua.clock.now()).await?;
        let by = super::visitor::from_where(client, parts.headers.get(header::USER_AGENT));
        Ok(Self { org: found.ok_or(UNAUTHENTICATED)?.org_id, by })
    }
}

impl OperationInput for ScimToken {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["scimToken"]);
        may_answer(operation, &[UNAUTHENTICATED]);
    }
}
