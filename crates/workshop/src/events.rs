//! What happens to apps, as audit logs tell it.
use tenancy::{
    apps::{AppKeyId, Environment, KeyKind},
    events,
};

events! {
    /// An app was created.
    AppCreated = "APP_CREATED";
    /// An app changed.
    AppUpdated { fields: Vec<&'static str> } = "APP_UPDATED";
    /// A key of an app was created.
    AppKeyCreated { key_id: AppKeyId, r#type: KeyKind, environment: Environment } = "APP_KEY_CREATED";
    /// An app blocked a person. They have no sessions in it.
    UserBlocked = "USER_BLOCKED";
    /// An app let a blocked person in again.
    UserUnblocked = "USER_UNBLOCKED";
}
