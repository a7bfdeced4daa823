//! A PKCS #11 module in C in front of another one. Its signatures take two seconds, and while a file exists,
//! its token is not there.

use casemate_test_support::{Program, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a signature takes.
pub(crate) const DELAY: Duration = Duration::from_secs(2);

/// The functions are in the order of CK_FUNCTION_LIST, behind the version: C_OpenSession is the 13th, C_Sign
/// the 44th of 68. CKR_DEVICE_REMOVED is 0x32, CKR_SESSION_HANDLE_INVALID 0xB3, CKR_TOKEN_NOT_PRESENT 0xE0.
const SOURCE: &str = r#"
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long number;
static void *functions[69];
static number (*open_session)(number, number, void *, void *, number *);
static number (*sign)(number, unsigned char *, number, unsigned char *, number *);

/* Sessions end when the token is removed. */
static int has_stale_session;

static int is_removed(void) {
    int is = access(REMOVED, F_OK) == 0;
    has_stale_session |= is;
    return is;
}

static number open_or_not(number slot, number flags, void *app, void *notify, number *session) {
    if (is_removed()) return 0xE0;
    has_stale_session = 0;
    return open_session(slot, flags, app, notify, session);
}

static number sign_slowly(number session, unsigned char *data, number len, unsigned char *out,
                          number *out_len) {
    if (is_removed()) return 0x32;
    if (has_stale_session) return 0xB3;
    if (out) sleep(2);
    return sign(session, data, len, out, out_len);
}

number C_GetFunctionList(void **list) {
    void *module = dlopen(BEHIND, RTLD_NOW), *behind;
    number (*get)(void **) = dlsym(module, "C_GetFunctionList");
    number result = get(&behind);
    memcpy(functions, behind, sizeof functions);
    open_session = functions[13];
    functions[13] = open_or_not;
    sign = functions[44];
    functions[44] = sign_slowly;
    *list = functions;
    return result;
}
"#;

/// The module.
pub(crate) struct SlowModule {
    pub(crate) path: PathBuf,
    removed: PathBuf,
}

impl SlowModule {
    /// Builds it in a directory. `None` without a C compiler.
    pub(crate) fn build(directory: &Path, behind: &Path) -> Option<Self> {
        if !Path::new("/usr/bin/cc").exists() {
            skip("a C compiler");
            return None;
        }
        let [source, path, removed] = ["slow.c", "slow.so", "removed"].map(|name| directory.join(name));
        fs::write(&source, SOURCE).unwrap();
        let define = |name: &str, path: &Path| format!("-D{name}=\"{}\"", path.display());
        let program = Program::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&path).arg(&source);
        let output = program.args([define("BEHIND", behind), define("REMOVED", &removed)]).output();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { path, removed })
    }

    pub(crate) fn remove_token(&self) {
        fs::write(&self.removed, "").unwrap();
    }

    pub(crate) fn insert_token(&self) {
        fs::remove_file(&self.removed).unwrap();
    }
}
