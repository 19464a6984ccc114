// Names are tsc's to know; what follows is what it lets pass.
import js from "@eslint/js";

export default [
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error", noInlineConfig: false },
    rules: {
      "no-undef": "off",
      "eqeqeq": "error",
      "no-var": "error",
      "prefer-const": "error",
      "no-implied-eval": "error",
      "no-eval": "error",
      "no-new-func": "error",
      "no-shadow": "error",
      "no-console": "error",
      "no-alert": "error",
      "no-self-compare": "error",
      "no-template-curly-in-string": "error",
      "no-unused-expressions": "error",
      "no-throw-literal": "error",
      "no-promise-executor-return": "error",
      "no-unreachable-loop": "error",
      "array-callback-return": "error",
      "no-restricted-properties": ["error",
        { property: "innerHTML", message: "texts of clients are made into elements" },
        { property: "outerHTML", message: "texts of clients are made into elements" },
        { object: "document", property: "write" }],
      "no-restricted-syntax": ["error",
        { selector: "ForInStatement", message: "for…of over Object.keys" }],
    },
  },
];
