#!/bin/sh
# Before nginx starts there must be a certificate; while it runs, a renewed one is found within 20 seconds.
set -eu
[ "$NGINX_TLS" != off ] || exit 0
/etc/nginx/certificate.sh take
/etc/nginx/certificate.sh watch 10 &
