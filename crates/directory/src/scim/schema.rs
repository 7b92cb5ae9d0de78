//! What a user and a group are made of (RFC 7643): one table of attributes, from which bodies are read, patches applied,
//! filters understood and the published schemas written.
use serde_json::{Value, json};

pub const USER: &str = "urn:ietf:params:scim:schemas:core:2.0:User";
pub const GROUP: &str = "urn:ietf:params:scim:schemas:core:2.0:Group";
pub const ENTERPRISE: &str = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Flag,
    Moment,
    Reference,
    Binary,
    Complex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutability {
    ReadWrite,
    ReadOnly,
    Immutable,
    /// Read, and kept by nobody.
    WriteOnly,
}

#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "the characteristics the standard gives an attribute")]
pub struct Attribute {
    pub name: &'static str,
    pub says: &'static str,
    pub kind: Kind,
    pub is_multiple: bool,
    pub is_required: bool,
    pub is_exact: bool,
    pub is_unique: bool,
    pub mutability: Mutability,
    pub parts: &'static [Attribute],
    pub words: &'static [&'static str],
    pub refers_to: &'static [&'static str],
}

impl Attribute {
    const fn of(name: &'static str, kind: Kind, says: &'static str) -> Self {
        Self {
            name,
            says,
            kind,
            is_multiple: false,
            is_required: false,
            is_exact: matches!(kind, Kind::Reference | Kind::Binary),
            is_unique: false,
            mutability: Mutability::ReadWrite,
            parts: &[],
            words: &[],
            refers_to: &[],
        }
    }
    const fn text(name: &'static str, says: &'static str) -> Self {
        Self::of(name, Kind::Text, says)
    }
    const fn complex(name: &'static str, says: &'static str, parts: &'static [Self]) -> Self {
        Self { parts, ..Self::of(name, Kind::Complex, says) }
    }
    const fn reference(name: &'static str, says: &'static str, refers_to: &'static [&'static str]) -> Self {
        Self { refers_to, ..Self::of(name, Kind::Reference, says) }
    }
    const fn many(self) -> Self {
        Self { is_multiple: true, ..self }
    }
    const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }
    const fn exact(self) -> Self {
        Self { is_exact: true, ..self }
    }
    const fn unique(self) -> Self {
        Self { is_unique: true, ..self }
    }
    const fn words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }
    const fn read_only(self) -> Self {
        Self { mutability: Mutability::ReadOnly, ..self }
    }
    const fn immutable(self) -> Self {
        Self { mutability: Mutability::Immutable, ..self }
    }
    const fn write_only(self) -> Self {
        Self { mutability: Mutability::WriteOnly, ..self }
    }

    pub fn part(&self, name: &str) -> Option<&'static Attribute> {
        self.parts.iter().find(|part| part.name.eq_ignore_ascii_case(name))
    }

    /// Whether the provider may set it.
    pub fn is_writable(&self) -> bool {
        self.mutability != Mutability::ReadOnly
    }

    fn json(&self) -> Value {
        let kind = match self.kind {
            Kind::Text => "string",
            Kind::Flag => "boolean",
            Kind::Moment => "dateTime",
            Kind::Reference => "reference",
            Kind::Binary => "binary",
            Kind::Complex => "complex",
        };
        let (mutability, returned) = match self.mutability {
            Mutability::ReadWrite => ("readWrite", "default"),
            Mutability::ReadOnly => ("readOnly", "default"),
            Mutability::Immutable => ("immutable", "default"),
            Mutability::WriteOnly => ("writeOnly", "never"),
        };
        let mut shown = json!({
            "name": self.name, "type": kind, "multiValued": self.is_multiple, "description": self.says,
            "required": self.is_required, "caseExact": self.is_exact, "mutability": mutability, "returned": returned,
            "uniqueness": if self.is_unique { "server" } else { "none" },
        });
        if !self.words.is_empty() {
            shown["canonicalValues"] = json!(self.words);
        }
        if !self.refers_to.is_empty() {
            shown["referenceTypes"] = json!(self.refers_to);
        }
        if !self.parts.is_empty() {
            shown["subAttributes"] = self.parts.iter().map(Self::json).collect();
        }
        shown
    }
}

pub struct Schema {
    pub id: &'static str,
    pub name: &'static str,
    pub says: &'static str,
    pub attributes: &'static [Attribute],
}

impl Schema {
    pub fn attribute(&self, name: &str) -> Option<&'static Attribute> {
        self.attributes.iter().find(|attribute| attribute.name.eq_ignore_ascii_case(name))
    }

    pub fn json(&self, base: &str) -> Value {
        json!({
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:Schema"],
            "id": self.id, "name": self.name, "description": self.says,
            "attributes": self.attributes.iter().map(Attribute::json).collect::<Vec<_>>(),
            "meta": { "resourceType": "Schema", "location": format!("{base}/scim/v2/Schemas/{}", self.id) },
        })
    }
}

/// A kind of thing: its schema and what extends it.
pub struct Resource {
    pub name: &'static str,
    pub path: &'static str,
    pub core: &'static Schema,
    pub extensions: &'static [&'static Schema],
}

pub static SCHEMAS: [&Schema; 3] = [&USER_SCHEMA, &ENTERPRISE_SCHEMA, &GROUP_SCHEMA];

impl Resource {
    /// Every schema of it, its own first.
    pub fn schemas(&self) -> impl Iterator<Item = &'static Schema> {
        std::iter::once(self.core).chain(self.extensions.iter().copied())
    }

    pub fn json(&self, base: &str) -> Value {
        let extensions: Vec<_> =
            self.extensions.iter().map(|s| json!({ "schema": s.id, "required": false })).collect();
        json!({
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ResourceType"],
            "id": self.name, "name": self.name, "endpoint": self.path, "description": self.core.says,
            "schema": self.core.id, "schemaExtensions": extensions,
            "meta": { "resourceType": "ResourceType", "location": format!("{base}/scim/v2/ResourceTypes/{}", self.name) },
        })
    }
}

pub static USERS: Resource =
    Resource { name: "User", path: "/Users", core: &USER_SCHEMA, extensions: &[&ENTERPRISE_SCHEMA] };
pub static GROUPS: Resource = Resource { name: "Group", path: "/Groups", core: &GROUP_SCHEMA, extensions: &[] };

/// What every resource has, beside its own: never written by a provider but for `externalId`.
pub static COMMON: [Attribute; 4] = [
    Attribute::text("id", "Unique id, assigned by the server.").exact().read_only(),
    Attribute::text("externalId", "The id of the resource at the provider.").exact(),
    Attribute::text("schemas", "The schemas of the resource.").exact().many().read_only(),
    Attribute::complex(
        "meta",
        "Metadata of the resource.",
        &[
            Attribute::text("resourceType", "User or Group.").exact().read_only(),
            Attribute::of("created", Kind::Moment, "Time of creation.").read_only(),
            Attribute::of("lastModified", Kind::Moment, "Time of the last change.").read_only(),
            Attribute::text("location", "Where it is.").exact().read_only(),
            Attribute::text("version", "Version, changed by every update.").exact().read_only(),
        ],
    )
    .read_only(),
];

const PRIMARY: Attribute = Attribute::of("primary", Kind::Flag, "Whether this is the primary value.");
const DISPLAY: Attribute = Attribute::text("display", "Display name.");
const TYPE: Attribute = Attribute::text("type", "What it is for.");

static PLURAL: [Attribute; 4] = [Attribute::text("value", "The value."), DISPLAY, TYPE, PRIMARY];

static USER_SCHEMA: Schema = Schema {
    id: USER,
    name: "User",
    says: "A user in the organization's directory.",
    attributes: &[
        Attribute::text("userName", "User name at the provider; unique in the organization.").required().unique(),
        Attribute::complex(
            "name",
            "The parts of the name.",
            &[
                Attribute::text("formatted", "All of it."),
                Attribute::text("familyName", "The family's."),
                Attribute::text("givenName", "Their own."),
                Attribute::text("middleName", "Between them."),
                Attribute::text("honorificPrefix", "Before them."),
                Attribute::text("honorificSuffix", "After them."),
            ],
        ),
        Attribute::text("displayName", "Display name."),
        Attribute::text("nickName", "Nickname."),
        Attribute::reference("profileUrl", "URL of the user's profile.", &["external"]),
        Attribute::text("title", "Job title, such as Vice President."),
        Attribute::text("userType", "Type of employment, such as Contractor."),
        Attribute::text("preferredLanguage", "Preferred language, as in Accept-Language."),
        Attribute::text("locale", "Locale for numbers and dates."),
        Attribute::text("timezone", "Time zone, such as Europe/Vienna."),
        Attribute::of("active", Kind::Flag, "false revokes sessions and keys immediately. Default: true.").required(),
        Attribute::text("password", "Ignored: users choose their own passwords.").exact().write_only(),
        Attribute::complex(
            "emails",
            "Emails. The primary one is invited; otherwise the first of type work; otherwise the first.",
            &[Attribute::text("value", "The email."), DISPLAY, TYPE.words(&["work", "home", "other"]), PRIMARY],
        )
        .many(),
        Attribute::complex("phoneNumbers", "Numbers.", &PLURAL).many(),
        Attribute::complex("ims", "Messengers.", &PLURAL).many(),
        Attribute::complex(
            "photos",
            "Pictures.",
            &[Attribute::reference("value", "Where it is.", &["external"]), DISPLAY, TYPE, PRIMARY],
        )
        .many(),
        Attribute::complex(
            "addresses",
            "Where they are.",
            &[
                Attribute::text("formatted", "All of it."),
                Attribute::text("streetAddress", "Street and number."),
                Attribute::text("locality", "The town."),
                Attribute::text("region", "The region."),
                Attribute::text("postalCode", "The code."),
                Attribute::text("country", "Two letters."),
                TYPE,
                PRIMARY,
            ],
        )
        .many(),
        Attribute::complex(
            "groups",
            "Groups of the user, and the role.",
            &[
                Attribute::text("value", "The group's id.").exact().read_only(),
                Attribute::reference("$ref", "The group.", &["Group"]).read_only(),
                DISPLAY.read_only(),
                TYPE.read_only(),
            ],
        )
        .many()
        .read_only(),
        Attribute::complex("entitlements", "Entitlements.", &PLURAL).many(),
        Attribute::complex(
            "roles",
            "Role in the organization. Set by its owners, and by groups that are mapped to a role.",
            &[
                Attribute::text("value", "owner, admin or member.").read_only(),
                DISPLAY.read_only(),
                TYPE.read_only(),
                PRIMARY.read_only(),
            ],
        )
        .many()
        .read_only(),
        Attribute::complex(
            "x509Certificates",
            "Certificates.",
            &[Attribute::of("value", Kind::Binary, "In DER, as base64."), DISPLAY, TYPE, PRIMARY],
        )
        .many(),
    ],
};

static ENTERPRISE_SCHEMA: Schema = Schema {
    id: ENTERPRISE,
    name: "EnterpriseUser",
    says: "Enterprise attributes of a user.",
    attributes: &[
        Attribute::text("employeeNumber", "A number or code."),
        Attribute::text("costCenter", "The cost center."),
        Attribute::text("organization", "The company."),
        Attribute::text("division", "The division."),
        Attribute::text("department", "The department."),
        Attribute::complex(
            "manager",
            "The user's manager.",
            &[
                Attribute::text("value", "The manager's id.").exact(),
                Attribute::reference("$ref", "The manager.", &["User"]),
                Attribute::text("displayName", "The manager's name.").read_only(),
            ],
        ),
    ],
};

static GROUP_SCHEMA: Schema = Schema {
    id: GROUP,
    name: "Group",
    says: "A group of users at the provider; and one read-only group for each role.",
    attributes: &[
        Attribute::text("displayName", "Name of the group; unique in the organization.").required().unique(),
        Attribute::complex(
            "members",
            "The members of the group.",
            &[
                Attribute::text("value", "The user's id.").exact().immutable(),
                Attribute::reference("$ref", "The user.", &["User"]).immutable(),
                Attribute::text("type", "Always User.").read_only().words(&["User"]),
            ],
        )
        .many(),
    ],
};
