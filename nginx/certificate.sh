#!/bin/sh
# The certificate that nginx serves: checked, and put in one step where nginx reads it at each handshake (run/tls.pem).
#
#   certificate.sh take            once; exit code 2 and one line with the cure where it cannot be served
#   certificate.sh watch SECONDS   looks so often whether it was renewed; says what cannot be served, and leaves in
#                                  place what is
#
# Reads NGINX_TLS (self-signed, files), NGINX_TLS_CERTIFICATE, NGINX_TLS_KEY and NGINX_SERVER_NAMES. Writes below the
# folder that this file lies in: run/tls.pem and, if self-signed, tls/, which is worth keeping: a person who trusts a
# self-made certificate does so once.
# A name may be *.example.org, which is no pattern of files here.
set -euf

folder=$(dirname "$0")
served=$folder/run/tls.pem
server_names=$(printf '%s' "${NGINX_SERVER_NAMES:-}" | tr -s ', \t' ' ')
day_seconds=86400

refuse() { # NAME MESSAGE
    echo "$1: $2" >&2
    exit 2
}

make_self_signed() {
    names="localhost${server_names:+ $server_names}"
    if [ -f "$certificate" ] && [ "$(cat "$folder/tls/names" 2>/dev/null)" = "$names" ] \
        && openssl x509 -in "$certificate" -noout -checkend $((30 * day_seconds)) >/dev/null; then
        return
    fi
    alternatives=IP:127.0.0.1,IP:0:0:0:0:0:0:0:1
    for name in $names; do
        alternatives="$alternatives,DNS:$name"
    done
    (
        umask 077
        mkdir -p "$folder/tls"
        # 397 days is the most that browsers take of anybody.
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 -days 397 \
            -subj "/CN=ERNIE serving (self-signed)" -addext "subjectAltName=$alternatives" \
            -addext extendedKeyUsage=serverAuth -keyout "$key" -out "$certificate" 2>/dev/null
    ) || refuse NGINX_TLS "the self-signed certificate cannot be made in $folder/tls: is that a place to write to?"
    printf '%s' "$names" >"$folder/tls/names"
    echo "certificate: made a self-signed one for $names and 127.0.0.1; browsers warn of it" >&2
}

check_file() { # NAME FILE
    [ -f "$2" ] || refuse "$1" "$2 is not there. With Docker it lies in the folder tls/ of the project, as a file: links that lead out of it lead nowhere."
    [ -r "$2" ] || refuse "$1" "$2 cannot be read by user $(id -u): chown $(id -u) $2"
}

check_pair() {
    check_file NGINX_TLS_CERTIFICATE "$certificate"
    check_file NGINX_TLS_KEY "$key"
    # All of the chain, and then the first, which is the server's own.
    { openssl crl2pkcs7 -nocrl -certfile "$certificate" && openssl x509 -inform PEM -in "$certificate" -noout; } >/dev/null 2>&1 \
        || refuse NGINX_TLS_CERTIFICATE "$certificate holds no certificate in PEM, or a broken one: copy the full chain (fullchain.pem) anew."
    ! grep -q ENCRYPTED "$key" \
        || refuse NGINX_TLS_KEY "$key has a password, which nobody can type here: openssl pkey -in $key -out privkey.pem writes one without."
    openssl pkey -inform PEM -in "$key" -noout 2>/dev/null \
        || refuse NGINX_TLS_KEY "$key holds no private key in PEM, or a broken one: copy privkey.pem anew."
    [ "$(openssl x509 -in "$certificate" -noout -pubkey)" = "$(openssl pkey -in "$key" -pubout)" ] \
        || refuse NGINX_TLS_KEY "$key does not belong to the first certificate in $certificate: take both from one issue, the server's own certificate first."
}

warn_of_end() {
    end=$(openssl x509 -in "$certificate" -noout -enddate | cut -d= -f2)
    if ! openssl x509 -in "$certificate" -noout -checkend 0 >/dev/null; then
        echo "certificate: warning: it expired on $end, and clients refuse it. Put a renewed one in its place; it is picked up within seconds." >&2
    elif ! openssl x509 -in "$certificate" -noout -checkend $((14 * day_seconds)) >/dev/null; then
        echo "certificate: warning: it ends on $end. Put a renewed one in its place; it is picked up within seconds." >&2
    fi
}

warn_of_names() {
    for name in $server_names; do
        openssl x509 -in "$certificate" -noout -checkhost "$(echo "$name" | sed 's/^\*\./any./')" | grep -q 'does match' \
            || echo "certificate: warning: it is not for $name (NGINX_SERVER_NAMES): clients that ask by that name refuse it." >&2
    done
}

take() {
    [ "$NGINX_TLS" != self-signed ] || make_self_signed
    check_pair
    warn_of_end
    warn_of_names
    (
        umask 077
        both >"$served.new" && mv "$served.new" "$served"
    )
}

both() {
    cat "$certificate" && echo && cat "$key"
}

watch() { # SECONDS
    # Another each day too: then warnings are repeated, and a self-signed certificate is made anew in time.
    known=$(date +%F; cksum <"$served")
    before=$known
    while sleep "$1"; do
        now=$(date +%F; both 2>/dev/null | cksum)
        # Certificate and key are two files: what still changes is not looked at.
        if [ "$now" != "$known" ] && [ "$now" = "$before" ]; then
            if (take); then
                echo "certificate: took it anew from $certificate" >&2
            else
                echo "certificate: the one before stays in use until this is mended" >&2
            fi
            known=$now
        fi
        before=$now
    done
}

if [ "$NGINX_TLS" = self-signed ]; then
    certificate=$folder/tls/self-signed.pem key=$folder/tls/self-signed.key
else
    certificate=$NGINX_TLS_CERTIFICATE key=$NGINX_TLS_KEY
fi
case $1 in
    take) take ;;
    watch) watch "$2" ;;
esac
