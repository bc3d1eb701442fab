module.exports = { apps: [{ name: "web", script: "app.js" }] };
