# The service, one image for every role: `docker compose up` says which process runs what.
FROM node:24-slim AS packages
WORKDIR /cabrank
COPY package.json package-lock.json ./
# Without `node` (a development dependency: the image has its own) and without the embedded database's binaries, which
# are optional packages. No package that is left needs its install script.
RUN npm ci --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund

FROM node:24-slim
# Listening on 127.0.0.1, the default, nobody outside of the container would be heard.
ENV NODE_ENV=production HOST=0.0.0.0
WORKDIR /cabrank
COPY --from=packages /cabrank/node_modules node_modules
COPY package.json ./
COPY migrations migrations
COPY domain domain
COPY src src
COPY simulator simulator
USER node
EXPOSE 3000
ENTRYPOINT ["node", "src/main.ts"]
CMD ["serve"]
