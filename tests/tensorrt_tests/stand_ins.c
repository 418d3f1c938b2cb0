/* Stands in for TensorRT's three libraries, so that its Python bindings can be imported, and looked at, where TensorRT is
   not: every function that the bindings refer to is there, and none does anything. */
void *createInferBuilder_INTERNAL(void *logger, int version) { return 0; }
void *createInferRefitter_INTERNAL(void *engine, void *logger, int version) { return 0; }
void *createInferRuntime_INTERNAL(void *logger, int version) { return 0; }
void *createNvOnnxParser_INTERNAL(void *network, void *logger, int version) { return 0; }
void *createNvOnnxParserRefitter_INTERNAL(void *refitter, void *logger, int version) { return 0; }
void *getBuilderPluginRegistry(int capability) { return 0; }
void *getPluginRegistry(void) { return 0; }
void *getLogger(void) { return 0; }
int getInferLibVersion(void) { return 0; }
int getNvOnnxParserVersion(void) { return 0; }
int initLibNvInferPlugins(void *logger, const char *name) { return 1; }
